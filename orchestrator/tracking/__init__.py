"""Delivery to MLflow, without the driver waiting for MLflow."""
