"""The client of sweeps: one protocol, with a backend over HTTP here and one in this process in `api`."""
