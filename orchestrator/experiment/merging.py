"""Results of a ledger together with results that were published from another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.experiment.file import Claim
from orchestrator.experiment.order import Ordering, ordering
from orchestrator.experiment.results import ArmResult, Origin, Results, Run
from orchestrator.experiment.samples import is_scored, sample_of


def merged(present: Results, earlier: Results) -> Results:
    """Return present results in which published arms stand for those that have fewer values here, or are new.

    A published arm is kept if its specification is that of the present file. It keeps its origin, so that
    the page names the commit that ran it. What the file says of an arm, such as its bound, is the file's.
    Runs of the same specification in other ledgers stay beside the one that stands: every trial counts.

    Args:
        present: of the ledger at hand.
        earlier: as they were published.
    """
    if _compared(present) != _compared(earlier):
        return present
    published = {arm.name: arm for arm in earlier.arms}
    arms = tuple(_chosen(arm, published.get(arm.name), earlier) for arm in present.arms)
    kept = {arm.name for arm, own in zip(arms, present.arms, strict=True) if arm is not own}
    whole = replace(present, arms=arms)
    orderings = tuple(
        _ordering(whole, claim, earlier) if {claim.better, claim.than} & kept else own
        for claim, own in zip(present.claims, present.orderings, strict=True)
    )
    return replace(whole, orderings=orderings)


def _compared(results: Results) -> tuple[str, str, bool]:
    return results.metric, results.reduction, results.maximize


def _chosen(own: ArmResult, published: ArmResult | None, earlier: Results) -> ArmResult:
    """Return an arm of the ledger, or the published one of the same specification if it leads further.

    The ledger of an earlier version does not record the hardware; what is published of the same values may.
    """
    if published is None or _identity(published) != _identity(own):
        return own
    circumstances = earlier.circumstances
    origin = Origin(circumstances.date, circumstances.commit, circumstances.machine)
    published = replace(published, origin=published.origin or origin)
    if _leads(published, own):
        stands = replace(
            published,
            published=own.published,
            cell=own.cell,
            hypothesis=own.hypothesis,
            size=own.size,
            obstacle="" if own.hypothesis else own.obstacle or published.obstacle,
            lack="",
        )
    else:
        is_known = own.origin is None or own.origin.machine or own.values != published.values
        stands = own if is_known else replace(own, origin=published.origin)
    return replace(stands, elsewhere=_elsewhere(stands, (*own.runs, *published.runs)))


def _elsewhere(stands: ArmResult, runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs that have trials in ledgers other than that of the arm, the latest state of each."""
    own = stands.runs[0]
    others: list[Run] = []
    for run in sorted(runs, key=lambda run: run.core_seconds, reverse=True):
        if run.trials and not any(run.is_run(other) for other in (own, *others)):
            others.append(run)
    return tuple(others)


def _leads(published: ArmResult, own: ArmResult) -> bool:
    """Return True if a published arm has more values, or was begun and the one of the ledger was not."""
    return len(published.seeds) > len(own.seeds) or (published.trials > 0 and not own.trials)


def _identity(arm: ArmResult) -> str:
    """Return the digest of a sweep's specification, or the call of a measured function."""
    return arm.digest or arm.about


def _ordering(present: Results, claim: Claim, earlier: Results) -> Ordering | None:
    """Compare the arms of a claim, at least one of which is published.

    Earlier versions did not publish the scores of test examples. What such results say of two arms stands
    while both are the published ones and their confidence is shared by no more claims than it was.
    """
    both = {arm.name: arm for arm in present.arms if arm.name in {claim.better, claim.than}}
    if any(not arm.values for arm in both.values()):
        return None
    samples = {name: sample_of(arm, present.metric) for name, arm in both.items()}
    is_known = not is_scored(present.metric) or all(each.scores is not None for each in samples.values())
    if not is_known and _same(both.values(), earlier) and len(present.claims) <= len(earlier.claims):
        for stated, measured in zip(earlier.claims, earlier.orderings, strict=True):
            if (stated.better, stated.than) == (claim.better, claim.than):
                return measured
    return ordering(
        samples[claim.better],
        samples[claim.than],
        maximize=present.maximize,
        comparisons=len(present.claims),
        paired=present.paired,
        scored=is_scored(present.metric),
    )


def _same(arms: Iterable[ArmResult], earlier: Results) -> bool:
    """Return True if arms have the values that were published of them."""
    published = {arm.name: arm.values for arm in earlier.arms}
    return all(arm.values == published.get(arm.name) for arm in arms)
