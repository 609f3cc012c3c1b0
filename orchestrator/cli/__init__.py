"""The command line: each verb parses its arguments, calls `orchestrator.api` and prints the answer."""
