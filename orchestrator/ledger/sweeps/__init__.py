"""Sweeps and trials: their records, their lease, and what their drivers write."""
