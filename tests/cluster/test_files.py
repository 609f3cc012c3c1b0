"""Every file of `cluster/` is what its reader accepts, says what to fill in, and opens no door."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler._private.util import prepare_config, validate_config
from ruamel.yaml import YAML

from benchmarks.faults.cluster import KEEPALIVE
from orchestrator.machines.cluster_file import UNFILLED, is_for_ray_up, problems, problems_of_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
RAY_UP = sorted(path for path in FOLDER.glob("*.yaml") if is_for_ray_up(path.read_text()))
ALL = sorted({*FOLDER.glob("*.yaml"), *FOLDER.glob("*.sh")} - {FOLDER / "compose.yaml"})
RULE = "# ----------------------------------------------------------------"


def read(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path)


def kuberay() -> dict[str, Any]:
    documents = YAML(typ="safe").load_all(FOLDER / "kuberay.yaml")
    return {document["kind"]: document for document in documents}


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_ray_accepts_its_files(path: Path) -> None:
    """By the schema and the defaults that `ray up` uses."""
    validate_config(prepare_config(read(path)))


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_the_schema_would_refuse_a_slip(path: Path) -> None:
    with pytest.raises(Exception, match="idle_timeout_minuts"):
        validate_config(prepare_config({**read(path), "idle_timeout_minuts": 5}))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_no_file_opens_a_door(path: Path) -> None:
    assert list(problems_of_text(path.name, path.read_text())) == []


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_what_is_left_to_do_is_to_fill_in(path: Path) -> None:
    """The checker asks for nothing else, once keys and folders are there."""
    document = read(path)
    document.get("auth", {}).pop("ssh_private_key", None)
    found = [str(problem) for problem in problems(path.name, document, lambda _: 0o600)]
    assert found
    assert all("must be filled in" in problem for problem in found)


@pytest.mark.parametrize("path", [*RAY_UP, FOLDER / "slurm.sh"], ids=lambda path: path.name)
def test_everything_to_fill_in_stands_at_the_top(path: Path) -> None:
    _, head, rest = path.read_text().split(RULE, 2)
    assert UNFILLED in head
    assert UNFILLED not in rest


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_clouds_scale_from_nothing_and_drive_without_a_gpu(name: str) -> None:
    document = read(FOLDER / f"{name}.yaml")
    nodes = document["available_node_types"]
    head = nodes.pop(document["head_node_type"])
    assert head["resources"] == {"CPU": 0}
    assert all(node["min_workers"] == 0 and node["resources"]["GPU"] for node in nodes.values())
    assert document["idle_timeout_minutes"] <= 10


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_every_node_gets_project_data_and_token(path: Path) -> None:
    document = read(path)
    assert set(document["file_mounts"].values()) == {".", "data", "mlruns/ray-token"}
    starts = " ".join(document["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in starts


KUBERAY = {
    "spec": {
        "entrypoint",
        "backoffLimit",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "rayClusterSpec",
    },
    "rayClusterSpec": {"rayVersion", "authOptions", "enableInTreeAutoscaling", "autoscalerOptions"}
    | {"headGroupSpec", "workerGroupSpecs"},
    "authOptions": {"mode", "secretName", "enableK8sTokenAuth"},
    "autoscalerOptions": {"version", "idleTimeoutSeconds", "upscalingMode", "resources", "env", "envFrom"},
    "headGroupSpec": {"rayStartParams", "template", "serviceType"},
    "workerGroupSpecs": {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""The fields of KubeRay's objects that such a file may use; whatever else it holds, the API server drops."""

REQUIRED = {
    "rayClusterSpec": {"headGroupSpec"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {"groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""Of them those without which the API server refuses it."""


def test_kuberay_knows_every_field_and_misses_none() -> None:
    """By the definitions of its resources, `ray.io/v1`, as KubeRay 1.6 has them."""
    job = kuberay()["RayJob"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in KUBERAY}

    def look(name: str, value: Any) -> None:
        for each in value if isinstance(value, list) else [value]:
            if name in found:
                found[name].append(each)
                for inner, below in each.items():
                    look(inner, below)

    look("spec", job["spec"])
    for name, objects in found.items():
        assert objects, name
        for each in objects:
            assert each.keys() <= KUBERAY[name], name
            assert each.keys() >= REQUIRED.get(name, set()), name
            # A flag of `ray start` is text, or the API server refuses it.
            assert all(isinstance(value, str) for value in each.get("rayStartParams", {}).values())
    (options,) = found["autoscalerOptions"]
    assert options["version"] in ("v1", "v2")


def test_kuberays_own_pods_reach_the_head_and_find_what_they_ask() -> None:
    """Its submitter and its operator use the job API; kubelet asks the agent, which is in `ray[default]`."""
    documents = kuberay()
    (rule,) = documents["NetworkPolicy"]["spec"]["ingress"]
    labels = [each["podSelector"]["matchLabels"] for each in rule["from"]]
    assert {"batch.kubernetes.io/job-name": documents["RayJob"]["metadata"]["name"]} in labels
    assert {"app.kubernetes.io/component": "kuberay-operator"} in labels
    assert "JOBS=1" in (FOLDER / "Dockerfile").read_text()


def test_kuberay_asks_for_the_token_and_no_pod_runs_as_another_version() -> None:
    job = kuberay()["RayJob"]["spec"]
    cluster = job["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["enableInTreeAutoscaling"] is True
    assert f'"ray[tune]=={cluster["rayVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] == 0
    assert kuberay()["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_the_shell_can_read_them(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck (Debian: shellcheck)")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_nothing_in_them_is_found_fault_with(path: Path) -> None:
    checked = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_containers_are_as_closed_as_what_make_up_starts() -> None:
    """Only this machine is listened to, secrets are files, and MLflow is started with the same options."""
    compose, script = read(FOLDER / "compose.yaml"), (FOLDER / "stores.sh").read_text()
    services = compose["services"]
    assert all(port.startswith("127.0.0.1:") for each in services.values() for port in each["ports"])
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/postgres-password"
    assert {name: each["file"] for name, each in compose["secrets"].items()} == {
        name: f"../stores/{name}" for name in ("postgres-password", "mlflow-password", "session-password")
    }
    command = services["mlflow"]["command"][-1]
    for option in ("--app-name basic-auth", "--allowed-hosts", "--cors-allowed-origins"):
        assert option in command
        assert option in script
    for name, value in services["mlflow"]["environment"].items():
        assert name in ("MLFLOW_AUTH_CONFIG_PATH", "PGPASSFILE") or f"{name}={value}" in script
    for line in compose["configs"]["auth"]["content"].splitlines():
        assert line in script or line.startswith("database_uri")


@pytest.mark.parametrize("name", ["node.sh", "slurm.sh", "Dockerfile"])
def test_a_short_silence_of_the_network_loses_no_node(name: str) -> None:
    """Every way to start a node waits for a minute; the fault suite cuts one off for 20 s under the same."""
    text = (FOLDER / name).read_text()
    assert f"RAY_grpc_keepalive_timeout_ms={KEEPALIVE}" in text
