"""The search-space file: from YAML to a frozen, validated sweep."""

from orchestrator.spec.model import Objective, Sweep
from orchestrator.spec.resolve import from_document, load
from orchestrator.spec.space import Distribution

__all__ = ["Distribution", "Objective", "Sweep", "from_document", "load"]
