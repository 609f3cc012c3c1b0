"""The queue of the service: submitted sweeps, and their settings."""
