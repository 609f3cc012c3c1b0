"""Ray Tune decides which trials run and where; everything it must know of us stands in this package."""
