"""Published tables and figures as experiment files: arms, seeds, comparisons and verdicts."""
