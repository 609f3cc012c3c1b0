"""Ray: which attempts run and where. The only package that imports it."""
