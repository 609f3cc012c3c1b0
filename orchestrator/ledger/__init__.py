"""The ledger: the database that is the authority on sweeps, trials, attempts and checkpoints."""
