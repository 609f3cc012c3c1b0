"""The files for Kubernetes against the published schemas of its API; `make test-units` installs these."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # YAML 1.1, as Kubernetes reads it: 0400 is octal

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "build" / "kubernetes-validate"
VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: a field that both the first and the last one have is in those between."""

pytestmark = pytest.mark.skipif(not SCHEMAS.is_dir(), reason="needs kubernetes-validate (make test-units)")


def documents() -> list[dict[str, Any]]:
    """Return the objects of the file that the API server itself knows, and the pods that KubeRay makes.

    The schema of a RayJob is KubeRay's, and allows everything that a pod template has.
    """
    objects = list(yaml.safe_load_all((ROOT / "cluster" / "kuberay.yaml").read_text()))
    cluster = next(entry["spec"]["rayClusterSpec"] for entry in objects if entry["kind"] == "RayJob")
    groups = {"head": cluster["headGroupSpec"]} | {
        group["groupName"]: group for group in cluster["workerGroupSpecs"]
    }
    pods = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": group["template"]}
        for name, group in groups.items()
    ]
    return [*(entry for entry in objects if entry["kind"] != "RayJob"), *pods]


def validated(folder: Path, objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Validate objects strictly: a property that the schemas do not have is an error."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    versions = [word for version in VERSIONS for word in ("-k", version)]
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", *versions, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(SCHEMAS)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_kubernetes_knows_every_field_of_the_objects_and_pods(tmp_path: Path) -> None:
    result = validated(tmp_path, documents())
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("passed for resource") == len(VERSIONS) * len(documents())
    assert "WARN" not in result.stdout, "a schema is missing"


@pytest.mark.parametrize(
    "name", ["envFrom", "volumeMounts", "preStop", "defaultMode", "podSelector", "policyTypes"]
)
def test_a_misspelt_field_is_refused(tmp_path: Path, name: str) -> None:
    text = yaml.safe_dump_all(documents()).replace(f"{name}:", f"{name}x:")
    result = validated(tmp_path, list(yaml.safe_load_all(text)))
    assert result.returncode == 1
    assert f"{name}x" in result.stdout
