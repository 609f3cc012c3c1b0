"""Python API of this machine, which `orchestrator` exports and the command line calls."""
