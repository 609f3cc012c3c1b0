"""The code that this process runs, which may be older than the code on disk."""

from __future__ import annotations

from orchestrator.provenance import code_digest

CODE = code_digest()
"""What was on disk when this process began to import the project."""
