"""Tracking: what is written to MLflow, and how it gets there without the driver waiting for MLflow."""
