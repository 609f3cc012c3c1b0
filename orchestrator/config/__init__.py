"""Search-space files: from YAML to a frozen, validated sweep."""

from orchestrator.config.resolve import from_dict, from_document, load
from orchestrator.config.space import Distribution
from orchestrator.config.sweep_config import Objective, SweepConfig

__all__ = ["Distribution", "Objective", "SweepConfig", "from_dict", "from_document", "load"]
