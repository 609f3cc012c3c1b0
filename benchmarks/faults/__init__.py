"""Fault injection into real sweeps: one command that prints one table of results.

    python -m benchmarks.faults [NAME ...] [--kills 6]

Each scenario runs the user-facing commands on a sweep that takes seconds and injects faults: kills, signals,
full disks, damaged files, an unreachable tracking server. It then checks the stores for what must hold.
"""
