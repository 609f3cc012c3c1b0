"""Every file of `cluster/` is valid, marks what must be filled in, and gives access to no stranger."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler._private.util import prepare_config, validate_config
from ruamel.yaml import YAML

from benchmarks.faults.cluster import KEEPALIVE
from orchestrator.machines.cluster_file import UNFILLED, is_for_ray_up, problems, problems_of_text
from orchestrator.schedule.environment import HUGE_PAGES

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
    """The check uses the schema and the defaults of `ray up`."""
    validate_config(prepare_config(read(path)))


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_the_schema_refuses_a_misspelt_key(path: Path) -> None:
    with pytest.raises(Exception, match="idle_timeout_minuts"):
        validate_config(prepare_config({**read(path), "idle_timeout_minuts": 5}))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_no_file_gives_access_to_strangers(path: Path) -> None:
    assert list(problems_of_text(path.name, path.read_text())) == []


@pytest.mark.parametrize("path", RAY_UP, ids=lambda path: path.stem)
def test_the_only_problems_are_values_to_fill_in(path: Path) -> None:
    """The checker reports nothing else once keys and folders exist."""
    document = read(path)
    document.get("auth", {}).pop("ssh_private_key", None)
    messages = [str(problem) for problem in problems(path.name, document, lambda _: 0o600)]
    assert messages
    assert all("must be filled in" in message for message in messages)


@pytest.mark.parametrize("path", [*RAY_UP, FOLDER / "slurm.sh"], ids=lambda path: path.name)
def test_values_to_fill_in_are_at_the_top(path: Path) -> None:
    _, head, rest = path.read_text().split(RULE, 2)
    assert UNFILLED in head
    assert UNFILLED not in rest


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_clouds_scale_from_zero_nodes_and_the_head_runs_no_trial(name: str) -> None:
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
"""The fields of KubeRay's objects that the file may use; the API server drops every other field."""

REQUIRED = {
    "rayClusterSpec": {"headGroupSpec"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {"groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"},
}
"""The fields without which the API server refuses the file."""


def test_kuberay_knows_every_field_and_misses_none() -> None:
    """The fields are those of KubeRay 1.6's definitions of `ray.io/v1`."""
    job = kuberay()["RayJob"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    objects: dict[str, list[dict[str, Any]]] = {name: [] for name in KUBERAY}

    def collect(name: str, value: Any) -> None:
        for entry in value if isinstance(value, list) else [value]:
            if name in objects:
                objects[name].append(entry)
                for inner_name, inner in entry.items():
                    collect(inner_name, inner)

    collect("spec", job["spec"])
    for name, entries in objects.items():
        assert entries, name
        for entry in entries:
            assert entry.keys() <= KUBERAY[name], name
            assert entry.keys() >= REQUIRED.get(name, set()), name
            # The API server refuses a flag of `ray start` that is not text.
            assert all(isinstance(value, str) for value in entry.get("rayStartParams", {}).values())
    (options,) = objects["autoscalerOptions"]
    assert options["version"] in ("v1", "v2")


def test_kuberays_own_pods_reach_the_head() -> None:
    """KubeRay's submitter and operator use the job API, and kubelet the agent, which is in `ray[default]`."""
    documents = kuberay()
    (rule,) = documents["NetworkPolicy"]["spec"]["ingress"]
    labels = [source["podSelector"]["matchLabels"] for source in rule["from"]]
    assert {"batch.kubernetes.io/job-name": documents["RayJob"]["metadata"]["name"]} in labels
    assert {"app.kubernetes.io/component": "kuberay-operator"} in labels
    assert "JOBS=1" in (FOLDER / "Dockerfile").read_text()


def test_kuberay_requires_the_token_and_the_pinned_version_of_ray() -> None:
    job = kuberay()["RayJob"]["spec"]
    cluster = job["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["enableInTreeAutoscaling"] is True
    assert f'"ray[tune]=={cluster["rayVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] == 0
    assert kuberay()["NetworkPolicy"]["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_bash_can_parse_it(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck (Debian: shellcheck)")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    checked = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_containers_are_as_restricted_as_the_servers_of_make_up() -> None:
    """They listen on the loopback alone, read secrets from files, and start MLflow with the same options."""
    compose, script = read(FOLDER / "compose.yaml"), (FOLDER / "stores.sh").read_text()
    services = compose["services"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"])
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/postgres-password"
    assert {name: secret["file"] for name, secret in compose["secrets"].items()} == {
        name: f"../stores/{name}"
        for name in ("postgres-password", "runs-password", "mlflow-password", "session-password")
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
def test_a_short_outage_of_the_network_loses_no_node(name: str) -> None:
    """Every way to start a node sets the timeout of a minute with which the fault suite cuts one off."""
    text = (FOLDER / name).read_text()
    assert f"RAY_grpc_keepalive_timeout_ms={KEEPALIVE}" in text


@pytest.mark.parametrize("name", ["node.sh", "slurm.sh", "Dockerfile"])
def test_nodes_have_huge_pages(name: str) -> None:
    """The workers of a cluster have the environment of their node, not that of the head of one machine."""
    ((variable, value),) = HUGE_PAGES.items()
    assert f"{variable}={value}" in (FOLDER / name).read_text()


def test_an_image_holds_what_it_is_built_from_and_nothing_else() -> None:
    """Data, stores with passwords, ledgers, the history and environments of the folder stay outside."""
    lines = (FOLDER.parent / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "what is not named is left out"
    named = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {"Makefile", "pyproject.toml", "README.md", "requirements", "orchestrator", "trainables"} <= named
    for name in ("data", "stores", "mlruns", "exports", "build", ".git", ".env", ".venv", ".ci", "tests"):
        assert name not in named
    assert all((FOLDER.parent / name).exists() for name in named)
    last = max(index for index, rule in enumerate(rules) if rule.startswith("!"))
    assert {"**/.env*", "**/*-password", "**/.pgpass", "**/ray-token", "**/.git"} <= set(rules[last + 1 :])


def test_base_images_have_a_whole_version() -> None:
    texts = (FOLDER / "Dockerfile").read_text(), (FOLDER / "compose.yaml").read_text()
    images = re.findall(r"^FROM (\S+)|^ +image: (\S+)", "\n".join(texts), re.MULTILINE)
    assert len(images) == 2
    for image in map("".join, images):
        assert re.fullmatch(r"(python:\d+\.\d+\.\d+|postgres:\d+\.\d+)-[a-z-]+(@sha256:[0-9a-f]{64})?", image)
