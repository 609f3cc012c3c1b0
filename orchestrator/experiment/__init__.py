"""Published tables and figures as files: sweeps, their seeds, what is compared, and a verdict."""
