"""A package with a layer that misbehaves as it is told, found by the service like anybody's."""
