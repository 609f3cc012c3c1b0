"""Functions and commands of users: their processes, their reports and their checkpoints."""
