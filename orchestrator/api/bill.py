"""What sweeps have used, by owner, sweep and device, at the prices of a file.

NVIDIA H200: 3.2    # a GPU-hour
CPU: 0.04           # a core-hour of trials without a GPU
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.client.answers import CostRow
from orchestrator.config.yaml_reader import parse_document
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.ledger.sweeps.lease import driven
from orchestrator.ledger.sweeps.standing import spent_by_device

_EXAMPLE = "For example `CPU: 0.04`."


@dataclass(frozen=True)
class PriceList:
    """Price of a GPU-hour by device, and of a core-hour as `CPU`; `where` names the file in errors."""

    where: str
    prices: Mapping[str, float]


def price_list(text: str, where: str) -> PriceList:
    """Return the prices in a YAML text.

    Args:
        text: One mapping of devices to prices.
        where: Name of the file, for errors.

    Raises:
        BadInput: The text is not plain YAML, or a price is not a number of at least 0.
    """
    prices: dict[str, float] = {}
    for device, node in parse_document(text, where).entries.items():
        if isinstance(node.value, bool) or not isinstance(node.value, int | float) or node.value < 0:
            raise BadInput(node.where, "must be a price of at least 0 an hour", node.shown(), _EXAMPLE)
        prices[device] = float(node.value)
    return PriceList(where, prices)


def hours(ledger: Ledger, since: float | None = None) -> list[CostRow]:
    """Return the hours that sweeps have used, by owner, sweep and device.

    Args:
        ledger: Ledger of the sweeps.
        since: Earliest time that counts, seconds since the epoch; None for all.
    """
    known, earliest = known_sweeps(ledger), since or 0.0
    records = [one for one in ledger.sweeps() if one.finished_at is None or one.finished_at >= earliest]
    with_driver, now = driven(ledger, [record.id for record in records]), ledger.now()
    found = []
    for record in records:
        until = now if record.id in with_driver else None
        used = spent_by_device(ledger.attempts(record.id), record, since=earliest, now=until)
        owner = known[record.id].owner
        found += [
            CostRow(owner, record.id, device, each.trial_hours, each.core_hours, each.gpu_hours)
            for device, each in used.items()
        ]
    return found


def priced(found: Sequence[CostRow], listed: PriceList) -> list[CostRow]:
    """Return rows with their costs.

    Args:
        found: Hours of sweeps.
        listed: Prices.

    Raises:
        BadInput: A device has no price.
    """
    if missing := sorted({row.device for row in found} - listed.prices.keys()):
        got = ", ".join(sorted(listed.prices)) or "no prices"
        remedy = f"Add a line such as `{missing[0]}: 1.5`."
        raise BadInput(listed.where, f"must have a price for {', '.join(missing)}", got, remedy)
    return [replace(row, cost=_billed_hours(row) * listed.prices[row.device]) for row in found]


def _billed_hours(row: CostRow) -> float:
    return row.core_hours if row.device == "CPU" else row.gpu_hours
