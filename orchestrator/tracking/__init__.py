"""MLflow, kept at arm's length: events in the ledger's outbox, shipped by a process of their own."""
