"""Reports of Keras: epochs are the steps.

model = keras.saving.load_model(trial.resume / "model.keras") if trial.resume else built()
model.fit(..., initial_epoch=trial.start, epochs=trial.steps, callbacks=[sweep_client.keras.Report()])
"""

from __future__ import annotations

from typing import Any

from keras.callbacks import Callback

import sweep_client


class Report(Callback):
    """Reports the metrics of each epoch with the model, and stops when the sweep requests it."""

    def __init__(self) -> None:
        super().__init__()
        self.trial = sweep_client.current()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report after the validation of the epoch."""
        (self.trial.folder / "saved").mkdir(exist_ok=True)
        self.model.save(self.trial.folder / "saved" / "model.keras")
        saved = self.trial.folder / "saved"
        if not self.trial.report(epoch + 1, logs or {}, checkpoint=saved):
            self.model.stop_training = True
