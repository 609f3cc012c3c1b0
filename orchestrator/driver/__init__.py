"""The process that runs a sweep, from what is settled before it starts to its report."""
