"""Published data sets: fetching them, and what the data folder holds."""
