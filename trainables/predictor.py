"""A predictor that a function of the user loads from the files of a script's checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import finalize

from trainables import checkpoint
from trainables.errors import Refusal
from trainables.importing import imported


class SavedPredictor:
    """The predictor of a checkpoint.

    Args:
        folder: Folder of the checkpoint.
        digest: Digest of the checkpoint.
        reference: `file.py:load` or `package.module:load`, a function that takes the folder of the saved
            files and returns a function of an input.
        code: Folder of the file.

    Raises:
        Refusal: The function cannot be imported, its result is not callable, or the trial has saved no files.
        DamagedCheckpoint: A file was changed.
    """

    def __init__(self, folder: Path, digest: str, reference: str, code: Path) -> None:
        facts = checkpoint.facts_of(folder, digest)
        if not facts["resumable"]:
            remedy = "Report a checkpoint: trial.report(..., checkpoint=folder)."
            raise Refusal(str(folder), "has no files to predict with", "", remedy)
        kept = Path(tempfile.mkdtemp(prefix="predictor-"))
        finalize(self, shutil.rmtree, kept, ignore_errors=True)  # not before: it may read its files later
        checkpoint.extract(folder, digest, kept)
        predict = imported(reference, code)(kept)
        if not callable(predict):
            got = type(predict).__name__
            raise Refusal(
                reference, "must return a function of an input", got, "Return model.predict, for example."
            )
        self._predict: Callable[[Any], Any] = predict

    def predict(self, given: Any) -> Any:
        """Return the answer of the predictor.

        Raises:
            Refusal: The predictor has raised an exception.
        """
        try:
            return self._predict(given)
        except MemoryError:
            raise  # of this machine, and not of the input
        except Exception as error:  # whatever the author's code and its libraries raise
            got = f"{type(error).__name__}: {error}"
            remedy = "Correct the input, or the predictor if the input is right."
            raise Refusal("the input", "cannot be processed by the predictor", got, remedy) from error
