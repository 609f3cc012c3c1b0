"""The science: layers, tasks, model, optimiser, engine. Knows nothing of Ray, Optuna, MLflow or SQL."""
