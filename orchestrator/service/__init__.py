"""The service: supervises the sweeps that people have submitted."""
