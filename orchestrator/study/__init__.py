"""The study: what to try next. Only this package and the report's importances import Optuna."""
