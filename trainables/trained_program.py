"""A user's program with the state of a checkpoint, which needs neither the sweep nor its data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trainables import checkpoint
from trainables.engine.custom import CustomProgram
from trainables.errors import Refusal
from trainables.program import Batch, Program, Supervised, Tree, loaded
from trainables.trial import ProgramSettings


class TrainedProgram:
    """The program of a checkpoint.

        trained = TrainedProgram(folder, digest)
        answers = trained.predict({"image": images})

    Attributes:
        settings: Settings of the trial that was trained.
        program: Program, constructed with the static hyperparameters of the trial.
        state: State that `Program.step` returned.
        step: Number of updates.
    """

    def __init__(self, folder: Path, digest: str, code: Path | None = None) -> None:
        """Read a checkpoint.

        Args:
            folder: Folder of the checkpoint.
            digest: SHA-256 of its manifest, as the ledger records it.
            code: Folder with the file of the program; None for the folder from which it was trained.

        Raises:
            DamagedCheckpoint: A file was changed.
            Refusal: The program cannot be imported, or has other arrays than the checkpoint.
        """
        arrays, facts = checkpoint.load(folder, digest)
        settings = ProgramSettings.from_document(facts["settings"])
        self.settings = settings if code is None else replace(settings, folder=str(code))
        self.program: Program = loaded(self.settings)
        trained = CustomProgram(self.program, self.settings).together(arrays)
        self.state: Tree = trained.state
        self.step = int(trained.step)
        self._outputs = (
            jax.jit(partial(_outputs, self.program)) if isinstance(self.program, Supervised) else None
        )

        self._predict = jax.jit(self.program.predict)

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """Return the program's answers for a batch of examples, arrays (B, ...) by name.

        Args:
            batch: Input of the program's `predict`.

        Raises:
            Refusal: The program does not define `predict`.
        """
        return {name: np.asarray(answers) for name, answers in self._predict(self.state, batch).items()}

    def outputs(self, batch: Batch) -> Any:
        """Return the outputs of the network for a batch of examples, in evaluation mode.

        Args:
            batch: Input of the program's `inputs`.

        Raises:
            Refusal: The program is not a `Supervised`, such as `Linen` and `Nnx`.
        """
        if self._outputs is None:
            must, remedy = "requires a program that derives from Supervised", "Use `program` and `state`."
            raise Refusal("outputs", must, type(self.program).__name__, remedy)
        return self._outputs(self.state, batch)


def _outputs(program: Supervised, state: Tree, batch: Batch) -> Any:
    return program.outputs(state["params"], state["rest"], batch, None)[0]
