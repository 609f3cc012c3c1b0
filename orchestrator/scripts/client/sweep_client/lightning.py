"""Reports of PyTorch Lightning: epochs are the steps.

callback = sweep_client.lightning.Report()
trainer = lightning.pytorch.Trainer(max_epochs=trial.steps, callbacks=[callback])
trainer.fit(module, training, validation, ckpt_path=callback.resume)
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

import sweep_client


class Report(Callback):
    """Reports the metrics of each epoch with a checkpoint, and stops when the sweep requests it."""

    def __init__(self) -> None:
        self.trial = sweep_client.current()
        self.resume = self.trial.resume and self.trial.resume / "last.ckpt"

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report after the validation of the epoch."""
        trainer.save_checkpoint(self.trial.folder / "saved" / "last.ckpt")
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        saved = self.trial.folder / "saved"
        trainer.should_stop |= not self.trial.report(trainer.current_epoch + 1, metrics, checkpoint=saved)
