"""Evaluates a stored checkpoint, in a Ray task or in a separate process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import process_secrets
from orchestrator.errors import ForeignAnswer
from orchestrator.ledger.sweeps.records import pack_scores
from orchestrator.storage import store
from orchestrator.training.engine_cache import EngineCache, cache_of_process, configure
from trainables import checkpoint
from trainables.durable import DIGITS
from trainables.trial import ProgramSettings, ScriptSettings, TrialSettings, settings_from

if TYPE_CHECKING:
    from trainables.engine import Engine


def evaluate(
    folder: str,
    digest: str,
    data: str,
    split: str,
    compilations: str,
    stored: str | None = None,
    program_folder: str | None = None,
    trial: str | None = None,
    *,
    cache: EngineCache | None = None,
) -> dict[str, Any]:
    """Return the step and the metrics of a checkpoint on one split, and for test the score of every example.

    The answer contains the digest of the checkpoint and the split, for `check_answer`. Validation uses the
    examples that training used (`evaluate_examples` of the settings), test uses all examples. The metrics of
    a further test split, such as x2, are named `accuracy_x2` and `loss_x2`.

    Args:
        folder: Folder of the checkpoint.
        digest: SHA-256 of its manifest, as the ledger records it.
        data: Folder of the data sets.
        split: `validation` or `test`.
        compilations: Folder of JAX's persistent compilation cache.
        stored: URL of the trial's checkpoints in the shared store; None if `folder` is complete.
        program_folder: Current folder of a user's program; None if it has not moved.
        trial: Key of the trial that the checkpoint must belong to; None for any.
        cache: Cache of engines and data; None for the cache of the process.

    Returns:
        A dictionary with `digest`, `split`, `step`, `metrics`, `scores`, `trained_on` and `evaluated_on`.
        `scores` are packed by `pack_scores`, or None for validation. `trained_on` and `evaluated_on` are
        kinds of devices, such as `cpu`.

    Raises:
        DamagedCheckpoint: A file of the checkpoint differs from what was recorded, or belongs to another
            trial.
        NoStore: The store cannot be read, or the disk of the checkpoint is not mounted.
    """
    configure(compilations)
    arrays, facts = store.load(Path(folder), stored, digest)
    if trial is not None:
        checkpoint.check_trial(Path(folder), facts, trial)
    settings = _settings(facts, program_folder)
    engine = (cache or cache_of_process()).engine(settings, data)
    engine.restore(0, settings, arrays)
    try:
        metrics, scores = _evaluated(engine, split, settings.evaluate_examples)
    finally:
        engine.evict(0)
    return {
        "digest": digest,
        "split": split,
        "step": facts["step"],
        "metrics": metrics,
        "scores": scores,
        "trained_on": facts["device"],
        "evaluated_on": engine.device,
    }


def _settings(facts: Mapping[str, Any], program_folder: str | None) -> TrialSettings | ProgramSettings:
    """Return the settings in the facts of a checkpoint, with the folder to which its program has moved."""
    settings = settings_from(facts["settings"])
    assert not isinstance(settings, ScriptSettings), "the service cannot evaluate a script"
    if program_folder and isinstance(settings, ProgramSettings):
        return replace(settings, folder=program_folder)
    return settings


def _evaluated(engine: Engine, split: str, examples: int | None) -> tuple[dict[str, float], str | None]:
    """Return the metrics of slot 0, and for test those on the further splits and the packed scores."""
    if split == "validation":
        return engine.evaluate(0, split, examples), None
    metrics, each = engine.evaluate_each(0, split)
    for further in engine.data.further:
        of_further = engine.evaluate(0, f"test_{further}")
        metrics |= {f"{name}_{further}": value for name, value in of_further.items()}
    return metrics, pack_scores(each)


def check_answer(answer: Mapping[str, Any], digest: str, split: str, step: int) -> None:
    """Check that an answer of `evaluate` is about the given checkpoint and split, as the ledger records them.

    Raises:
        ForeignAnswer: The answer is about another checkpoint or split.
    """
    asked = digest, split, step
    named = answer.get("digest"), answer.get("split"), answer.get("step")
    if named != asked:
        must, got = f"must be about {_question(*asked)}", _question(*named)
        remedy = "Nothing was recorded; run the same command again."
        raise ForeignAnswer("the answer of an evaluation", must, got, remedy)


def _question(digest: object, split: object, step: object) -> str:
    return f"checkpoint {str(digest)[:DIGITS]} at step {step} on {split}"


if __name__ == "__main__":
    process_secrets.begin()
    place, own, data_sets, part, compiled, beside, key = sys.argv[1:8]
    answer = evaluate(place, own, data_sets, part, compiled, program_folder=beside or None, trial=key)
    print(json.dumps(answer))  # noqa: T201 - the answer of this process
