"""Workers: attempts in the slots of an engine. No other package of the service runs JAX."""
