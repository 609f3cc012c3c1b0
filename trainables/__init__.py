"""The science: layers, tasks, model, optimiser, engine. It does not import Ray, Optuna, MLflow or SQL."""
