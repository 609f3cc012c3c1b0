"""Published data sets: download and inventory."""
