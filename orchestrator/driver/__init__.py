"""The process that runs a sweep, from the checks before it starts to its report."""
