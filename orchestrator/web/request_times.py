"""Latency of requests by route, as a histogram in Prometheus' format."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the histogram in seconds."""

UNKNOWN = "unknown"
"""Label of requests that match no route, so that their addresses make no new time series."""


class RequestTimes:
    """Histogram of the seconds from a request to the head of its answer.

    Attributes:
        registry: Own registry, without the metrics that other packages of this process register.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "sweep_http_request_seconds",
            "Time from a request to the head of its answer, by route and class of the status.",
            ("route", "status"),
            registry=self.registry,
            buckets=BUCKETS,
        )

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Add one request."""
        self._seconds.labels(route, f"{status // 100}xx").observe(seconds)


class TimedRequests:
    """Middleware that measures every request.

    Args:
        app: Application behind it.
        times: Histogram of the measurements.
    """

    def __init__(self, app: ASGIApp, times: RequestTimes) -> None:
        self._app, self._times = app, times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, as ASGI defines it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "name", UNKNOWN)
                self._times.observe(route, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, timed)
