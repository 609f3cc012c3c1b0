"""What tasks are made of: the contract, the cache, the readers of published formats."""
