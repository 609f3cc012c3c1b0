"""Where files are: every path has its name here, and checkpoints a place that all nodes reach."""
