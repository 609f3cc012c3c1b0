"""A sweep, or a trial of it, for somebody else: files that need neither ledger nor service."""
