"""The revisions, in order; each names the one before it."""
