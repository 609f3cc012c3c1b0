"""The page when requests fail: streams that are refused, cut or too many, a network that goes and comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.end_to_end import browser
from tests.end_to_end.page import open_sweep, points, running, shown, sign_in
from tests.end_to_end.relay import Relay, relayed
from tests.orchestrator.web import server
from tests.orchestrator.web.server import Client

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("page") / "mlruns") as served:
        yield served


@pytest.fixture
def relay(client: Client) -> Iterator[Relay]:
    with relayed(client.address) as relay:
        yield relay


@pytest.mark.slow
def test_a_fetch_that_fails_is_shown_and_the_next_one_is_made(
    chrome: webdriver.Chrome, client: Client
) -> None:
    sign_in(chrome, client, "vera")
    with running(client, 20) as report:
        report(40, 0.6)
        open_sweep(chrome, client.address)
        browser.until("the curve", lambda: points(chrome) == [1])
        chrome.execute_cdp_cmd("Network.enable", {})
        try:
            chrome.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/curves*"]})
            report(80, 0.7)
            browser.until("the problem", lambda: "cannot be reached" in shown(chrome, "refresh-problem"))
        finally:
            chrome.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        report(120, 0.8)
        browser.until("the next curve", lambda: points(chrome) == [3])
        browser.until("no problem", lambda: shown(chrome, "refresh-problem") == "")


def test_a_stream_that_is_refused_is_opened_again(
    chrome: webdriver.Chrome, client: Client, relay: Relay
) -> None:
    """A proxy's 502 closes an EventSource for good; meanwhile the page asks every five seconds."""
    sign_in(chrome, client, "vera", relay.address)
    with running(client, 21) as report:
        open_sweep(chrome, relay.address)
        browser.until("the stream", lambda: shown(chrome, "connection") == "live")
        relay.is_failing = True
        relay.cut()
        browser.until("the loss", lambda: "every 5 s" in shown(chrome, "connection"))
        report(40, 0.6)
        browser.until("a report without a stream", lambda: "40 of 200" in shown(chrome, "trials"))
        assert relay.streams == 0
        relay.is_failing = False
        browser.until("the stream again", lambda: shown(chrome, "connection") == "live")
        report(80, 0.7)
        browser.until("its next report", lambda: "80 of 200" in shown(chrome, "trials"))


def test_a_page_whose_token_is_no_longer_valid_asks_for_another(
    chrome: webdriver.Chrome, client: Client, relay: Relay
) -> None:
    sign_in(chrome, client, "vera", relay.address)
    browser.until("the stream", lambda: relay.streams == 1)
    chrome.delete_all_cookies()
    relay.cut()
    browser.until("the form", lambda: chrome.current_url.endswith("/sign-in"))


def test_a_network_that_goes_and_comes_leaves_the_page_alive(
    chrome: webdriver.Chrome, client: Client
) -> None:
    sign_in(chrome, client, "vera")
    with running(client, 22) as report:
        open_sweep(chrome, client.address)
        browser.until("the stream", lambda: shown(chrome, "connection") == "live")
        chrome.set_network_conditions(offline=True, latency=0, throughput=-1)
        try:
            report(40, 0.6)
            browser.until("the loss", lambda: "lost" in shown(chrome, "connection"))
        finally:
            chrome.delete_network_conditions()
        browser.until("the report", lambda: "40 of 200" in shown(chrome, "trials"))
        browser.until("the stream again", lambda: shown(chrome, "connection") == "live")


@pytest.mark.slow
def test_seven_tabs_share_one_stream(chrome: webdriver.Chrome, client: Client, relay: Relay) -> None:
    """A browser opens six connections to a server: with a stream each, the seventh tab would hang."""
    sign_in(chrome, client, "vera", relay.address)
    first = chrome.current_window_handle
    try:
        with running(client, 23) as report:
            report(40, 0.6)
            for tab in range(7):
                chrome.switch_to.new_window("window")
                open_sweep(chrome, relay.address) if tab < 4 else chrome.get(relay.address)
            tabs = [handle for handle in chrome.window_handles if handle != first]
            report(80, 0.7)
            for tab, handle in enumerate(tabs):
                chrome.switch_to.window(handle)
                what, where = ("80 of 200", "trials") if tab < 4 else (server.QUEUED, "queue")
                browser.until(f"tab {tab}", lambda what=what, where=where: what in shown(chrome, where))
            assert relay.streams == 1
            chrome.switch_to.window(tabs[0])
            chrome.close()
            chrome.switch_to.window(tabs[-1])
            browser.until("another leader", lambda: relay.streams == 1)
    finally:
        for handle in chrome.window_handles:
            if handle != first:
                chrome.switch_to.window(handle)
                chrome.close()
        chrome.switch_to.window(first)


def test_a_hidden_page_holds_no_stream(chrome: webdriver.Chrome, client: Client, relay: Relay) -> None:
    sign_in(chrome, client, "vera", relay.address)
    browser.until("the stream", lambda: relay.streams == 1)
    hide = """
      Object.defineProperty(document, "hidden", {value: arguments[0], configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    """
    chrome.execute_script(hide, True)
    browser.until("no stream", lambda: relay.streams == 0)
    chrome.execute_script(hide, False)
    browser.until("the stream again", lambda: relay.streams == 1)
