"""Users of the HTTP API, the audit log, and idempotency keys."""
