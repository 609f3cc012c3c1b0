"""The service in Python: what `orchestrator` exports and every verb of the command line calls."""
