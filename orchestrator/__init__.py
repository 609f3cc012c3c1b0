"""The sweep service: specification, ledger, study, schedule, tracking, report."""
