"""What a person sees of a sweep, at any time, from the ledger alone."""
