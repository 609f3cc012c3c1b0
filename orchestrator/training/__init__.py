"""What happens in a worker: attempts in the slots of an engine. Only here does the service meet JAX."""
