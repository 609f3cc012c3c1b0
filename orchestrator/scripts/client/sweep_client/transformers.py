"""Reports of Hugging Face's Trainer: its checkpoints are those of the trial.

report = sweep_client.transformers.Report()
settings = TrainingArguments(trial.folder, eval_strategy="epoch", save_strategy="epoch", ...)
trainer = Trainer(model, settings, ..., callbacks=[report])
trainer.train(resume_from_checkpoint=report.resume)
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

import sweep_client


class Report(TrainerCallback):
    """Reports each evaluation with the checkpoint that is saved after it; epochs are the steps."""

    def __init__(self) -> None:
        self.trial = sweep_client.current()
        self.resume = self.trial.resume and str(self.trial.resume)
        self.metrics: dict[str, float] = {}

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        """Keep the metrics until the checkpoint is saved."""
        self.metrics = {name: value for name, value in metrics.items() if name != "epoch"}

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the epoch."""
        saved = self.trial.folder / f"checkpoint-{state.global_step}"
        if not self.trial.report(round(state.epoch), self.metrics, checkpoint=saved):
            control.should_training_stop = True
