"""The machines that trials run on: their resources, their cluster token, and draining."""
