"""The file that MLflow stores in a model and runs to serve it, beside the package `trainables`.

It imports nothing of the service, which is not installed on a serving machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext
from pandas import DataFrame

from trainables.errors import Refusal


class Served(PythonModel):
    """Answers MLflow's `predict` from a checkpoint; answers other input than examples with code 400."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the checkpoint."""
        # Imported here because MLflow also runs this file where a model is logged, and that process needs no
        # JAX.
        from trainables.inference import Predictor

        digest = context.model_config["checkpoint_digest"]
        self.predictor = Predictor(Path(context.artifacts["checkpoint"]), digest)

    # Without annotations, because MLflow would read them as a schema.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Answer a frame of texts, one column a text, or an array of examples.

        Raises:
            MlflowException: INVALID_PARAMETER_VALUE, which says what must hold and what was given.
        """
        try:
            return DataFrame(self.predictor.predict(_examples(model_input)))
        except Refusal as refusal:
            raise MlflowException.invalid_parameter_value(str(refusal)) from None


def _examples(model_input: Any) -> list[Any]:
    if isinstance(model_input, DataFrame):
        rows = model_input.itertuples(index=False, name=None)
        return [row[0] if len(row) == 1 else row for row in rows]
    return list(np.asarray(model_input))


set_model(Served())
