"""Exports of a sweep or a trial: files that need neither the ledger nor the service."""
