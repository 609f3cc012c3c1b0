"""The rules of the loans of one process: one at a time, whatever order messages arrive in."""

from __future__ import annotations

import itertools
import pickle

import pytest

from orchestrator.schedule.loans import WRONG_LOAN, Lending, Loan, WrongLoan


def test_every_loan_has_an_id_of_its_own() -> None:
    assert len({Loan("driver").id for _ in range(100)}) == 100


def test_a_process_is_lent_to_its_creator_from_the_start() -> None:
    lending = Lending("first")
    assert not lending.claim("other")
    lending.check("first")


def test_a_loan_that_is_used_is_not_returned() -> None:
    lending = Lending("first")
    lending.use("first")
    assert not lending.withdraw("first")
    assert not lending.claim("other")
    lending.is_used = False
    assert lending.withdraw("first")
    assert lending.claim("other")


def test_a_claim_that_arrives_after_its_withdrawal_is_refused() -> None:
    lending = Lending("first")
    assert not lending.withdraw("late"), "the process has another loan"
    lending.check("first")
    lending.end("first")
    assert not lending.claim("late")
    assert lending.claim("next")


@pytest.mark.parametrize("act", ["use", "end", "check"])
@pytest.mark.parametrize("present", [None, "other"])
def test_a_call_for_another_loan_is_refused_and_changes_nothing(act: str, present: str | None) -> None:
    lending = Lending("first")
    lending.end("first")
    assert present is None or lending.claim(present)
    with pytest.raises(WrongLoan, match=WRONG_LOAN) as refused:
        getattr(lending, act)("first")
    assert (refused.value.called_for, refused.value.present) == ("first", present)
    assert (lending.present, lending.is_used) == (present, False)


def test_a_process_leaves_only_without_a_loan_and_is_then_never_lent() -> None:
    lending = Lending("first")
    assert not lending.leave()
    lending.end("first")
    assert lending.leave()
    assert not lending.claim("next")


def test_a_refusal_survives_the_way_to_the_driver() -> None:
    refusal = pickle.loads(pickle.dumps(WrongLoan("a", "b")))
    assert str(refusal) == f"{WRONG_LOAN}, b (got a)"


def test_no_order_of_two_drivers_messages_gives_a_process_to_both() -> None:
    """Each claims, gives up waiting and withdraws; what was granted is what its driver may use."""
    for order in itertools.permutations(["claim a", "withdraw a", "claim b", "withdraw b"]):
        lending = Lending("first")
        lending.end("first")
        holders: set[str] = set()
        for message in order:
            act, loan = message.split()
            if act == "claim" and lending.claim(loan):
                holders.add(loan)
            elif act == "withdraw" and lending.withdraw(loan):
                holders.discard(loan)
            assert holders == ({lending.present} if lending.present else set()), order
        assert not holders, f"{order}: a withdrawn loan has begun"
