"""The parts that tasks share: their contract, the cache, the readers of published formats."""
