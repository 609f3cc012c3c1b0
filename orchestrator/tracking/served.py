"""The file that MLflow stores in a model and runs to serve it, beside the package `trainables`.

It does not import the service, which is not installed on a serving machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from pandas import DataFrame

from trainables.errors import Refusal
from trainables.predictor import SavedPredictor

if TYPE_CHECKING:
    from trainables.trained_program import TrainedProgram


class Served(PythonModel):
    """A model for MLflow's `predict`, loaded from a checkpoint. It answers invalid input with code 400."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the checkpoint."""
        folder, digest = Path(context.artifacts["checkpoint"]), context.model_config["checkpoint_digest"]
        self.answer: Callable[[Any], Any]
        code = context.artifacts.get("program")  # None of an installed package
        if reference := context.model_config.get("predictor"):
            self.answer = SavedPredictor(folder, digest, reference, Path(code or folder)).predict
            return
        # Imported here because MLflow also runs this file in the process that logs a model, without JAX.
        from trainables import inference, trained_program

        if context.model_config.get("is_program"):
            program = trained_program.TrainedProgram(folder, digest, Path(code) if code else None)
            self.answer = lambda given: _predicted(program, given)
        else:
            network = inference.Predictor(folder, digest)
            self.answer = lambda given: DataFrame(network.predict(_examples(given)))

    # Without annotations, because MLflow would read them as a schema.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Return the answers to a frame of texts, with one column a text, or to an array of examples.

        A program reads a dict of arrays, and a function or a command the input of its own predictor.

        Raises:
            MlflowException: INVALID_PARAMETER_VALUE if the model cannot read the input.
        """
        try:
            return self.answer(model_input)
        except Refusal as refusal:
            raise MlflowException.invalid_parameter_value(str(refusal)) from None


def _predicted(program: TrainedProgram, model_input: Any) -> dict[str, np.ndarray]:
    """Return the answers of a program.

    Raises:
        Refusal: The program cannot read the input.
    """
    batch = _batch(model_input)
    try:
        return program.predict(batch)
    except (MemoryError, RuntimeError):
        raise  # caused by this machine, not by the input
    except Exception as error:  # code of the user can raise any error
        got = f"{', '.join(batch)}, and {type(error).__name__}: {error}"
        remedy = "Name and shape the arrays as the program's data does."
        raise Refusal("the input", "must be a batch that the program can read", got, remedy) from error


def _batch(model_input: Any) -> dict[str, np.ndarray]:
    """Return a batch of named arrays, from a dict or from the columns of a frame."""
    if isinstance(model_input, DataFrame):
        return {str(name): np.asarray(column.to_list()) for name, column in model_input.items()}
    if not isinstance(model_input, Mapping):
        must, remedy = (
            "must be a dict of arrays or a data frame",
            "Name the arrays as the program's data does.",
        )
        raise Refusal("the input", must, type(model_input).__name__, remedy)
    return {str(name): np.asarray(array) for name, array in model_input.items()}


def _examples(model_input: Any) -> list[Any]:
    if isinstance(model_input, DataFrame):
        rows = model_input.itertuples(index=False, name=None)
        return [row[0] if len(row) == 1 else row for row in rows]
    return list(np.asarray(model_input))


set_model(Served())
