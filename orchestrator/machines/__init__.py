"""The machines that trials run on: their resources, the token that admits them, how one is drained."""
