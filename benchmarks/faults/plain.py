"""Observed behaviour of the plain stack under the same kinds of fault, as its users run it.

Ray Tune 2.60.0 with OptunaSearch on a database (Optuna 5.0.0), MLflowLoggerCallback (MLflow 3.17.2) and
`Tuner.restore`; 8 trials of 8 reports with a checkpoint per report, two at a time, on two cores. Single runs,
by hand or with `plain_stack`: they show that a failure happens, not how often.
"""

from __future__ import annotations

KILLED = (
    "4 kills over 8 trials: 4 trials ran to their end twice; Optuna left with 12 rows, 4 RUNNING for ever; "
    "MLflow with 15 runs, 3 RUNNING for ever; again, by `plain_stack`: 11 of 64 steps run again, 1 trial "
    "to its end twice; MLflow with 16 runs, 8 RUNNING for ever"
)
NO_MLFLOW = (
    "server killed: the driver ends with 12 of 64 steps run; 2 trials RUNNING for ever in Optuna and MLflow"
)
FULL_DISK = "driver dies, its state is cut off in the middle: not resumable"
DAMAGED = "a state file that cannot be parsed: the sweep begins anew, silently"
SIGTERM = "not handled: code 1, both finished trials stored as RUNNING"
NAN = "the trial stays RUNNING in Optuna's database for ever"
IMPOSSIBLE = "hangs, one warning after 60 s"
