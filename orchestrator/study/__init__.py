"""The study: what to try next. Optuna lives here and nowhere else."""
