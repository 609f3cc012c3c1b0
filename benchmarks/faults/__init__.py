"""Faults done to real sweeps, and what became of them: one command, one table.

    python -m benchmarks.faults [NAME ...] [--quick]

Every scenario runs the commands that a person runs, on a sweep of seconds, and hurts them: kills, signals,
full disks, damaged files, a tracking server that is gone. What must hold is asked of the stores afterwards.
"""
