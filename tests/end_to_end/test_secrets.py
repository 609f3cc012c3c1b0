"""Secrets in the environment, files and addresses of a sweep appear in none of the files it leaves.

Nor can a trial read them in what its machine shows of other processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from orchestrator.ledger.ledger import Ledger
from tests import postgres
from tests.another_account import needs_root, reached
from tests.end_to_end.commands import Commands, finish, wait_for
from tests.end_to_end.identities import Search
from tests.packages import installed
from tests.programs import program
from tests.shared_ray import own_ray, runtime_folder_of

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow]

SPACE = """
# kept at http://me:canary-file@host/spaces
task: copy
data: {delay: 6, examples: 400, held_out: 40}
model: {layer: loud, depth: 1, d_model: 8, d_state: 16}
training: {steps: 20, interval: 10, batch_size: 8, learning_rate: 1e-3, recurrent_learning_rate: 1e-3}
evaluate: {examples: 40}
search: {says: {choice: ["nothing", all]}}
objective: {minimize: val/loss}
sampler: {grid: {}}
scheduler: {none: {}}
budget: {trials: 2}
resources: {cpu: 1}
"""
LAYER = """
import os
from trainables.layers.lds import LDS
from trainables.settings import LayerSettings, Option

class Loud(LDS):
    settings = LayerSettings("Fails.", {"says": Option("nothing", "The text.", choices=("nothing", "all"))})

    def __init__(self, *sizes, says="nothing", **options):
        super().__init__(*sizes, **options)
        if says == "all":
            raise RuntimeError(f"no answer of db://me:canary-error@host/x with {os.environ['LOUD_API_KEY']}")
"""


def rows(url: str) -> str:
    """Return every row of every table."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        return "".join(str(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for (name,) in tables)


def test_planted_secrets_appear_in_no_output(
    commands: Commands, postgres_server: postgres.Server, temporary: Path, tmp_path: Path
) -> None:
    """Neither ledger, MLflow, logs nor the states of Ray contain one, nor does the output of the command."""
    file, url = tmp_path / "space.yaml", postgres_server.empty_database()
    file.write_text(SPACE)
    points = {"trainables.layers": {"loud": "loud:Loud"}}
    site = installed(tmp_path / "site", points, {"loud.py": LAYER}, "loud")
    environment = {
        "SWEEP_LEDGER": url,
        "LOUD_API_KEY": "canary-environment",
        "SWEEP_VARIABLES": "LOUD_API_KEY",
        "AWS_SECRET_ACCESS_KEY": "canary-store",
        "PYTHONPATH": f"{site}:{Path.cwd()}",
    }
    webhook = "http://me:canary-user@127.0.0.1:9/canary-path?token=canary-query"
    command = (str(file), "--notify", webhook, "--tracking-patience")
    unreachable = "http://me:canary-uri@127.0.0.1:9"
    with own_ray(temporary) as ray:
        code, first = commands.run(*command, "1", MLFLOW_TRACKING_URI=unreachable, **environment, **ray)
        assert code == 3, first
        code, second = commands.run(*command, "90", **environment, **ray)
        assert code == 3, second
        written = {
            path: path.read_bytes()
            for folder in (commands.root, temporary)
            for path in folder.rglob("*")
            if path.is_file()
        }
        token = (runtime_folder_of(temporary) / "ray-token").read_bytes()
    assert any("session_" in str(path) for path in written), "the files of Ray are among them"
    written |= {Path("output"): (first + second).encode(), Path("ledger"): rows(url).encode()}
    error = b"no answer of db://host/x with ***"
    # A process that was ended while it had the database open leaves the newest rows in its log.
    recorded = {path.name.removesuffix("-wal") for path, content in written.items() if error in content}
    assert {"ledger", "mlflow.db"} < recorded, "the error itself must be recorded"
    secrets = (b"canary", postgres.PASSWORD.encode(), token)
    hits = {(path.name, secret) for path, text in written.items() for secret in secrets if secret in text}
    assert hits == {("ray-token", secrets[2])}


PLANTED = {
    "AWS_ACCESS_KEY_ID": "canary-of-a-key",
    "AWS_SECRET_ACCESS_KEY": "canary-of-a-store",
    "MLFLOW_TRACKING_PASSWORD": "canary-of-mlflow",
    "MLFLOW_TRACKING_TOKEN": "canary-of-mlflow-too",
    "GITHUB_TOKEN": "canary-of-a-service",
    "DATABASE_URL": "postgresql://me:canary-of-an-address@host/x",
    "QUEUE": "amqp://host/x?password=canary-of-a-query",
    "NAMED_LIKE_NOTHING": "canary-of-no-name",
    "ASKED_KEY": "canary-that-is-asked-for",
}
SEEN = """
import os
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "seen"), "w") as file:
    word = "".join(("can", "ary"))  # which no file is to hold
    file.write(",".join(sorted(name for name, value in os.environ.items() if word in value)))

"""
OF_WORKERS = {name for name in PLANTED if name.startswith(("AWS_", "MLFLOW_", "ASKED_"))}


def holding(*folders: Path) -> list[str]:
    """Return the files below folders that hold a planted secret.

    Another process reads them: closing a database's file would end the locks that this one has on it.
    """
    search = ["grep", "-rlaF", "canary", *map(str, folders)]
    return subprocess.run(search, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize("kind", ["function", "command", "program"])
def test_no_file_holds_a_secret_while_a_sweep_runs_is_killed_and_resumes(
    commands: Commands, temporary: Path, kind: str
) -> None:
    """Nor in a service, nor in what is exported; those of Ray and of the attempts are among them."""
    own, attempts = commands.folder / "own", temporary / "tmp"
    attempts.mkdir()
    steps, interval = (20_000, 500) if kind == "program" else (30, 1)
    search = Search(kind, trials=2, steps=steps, interval=interval, pause=0.1)
    file, other = search.write(own, "echo"), replace(search, seed=2).write(own, "served")
    for script in own.glob("of_*.py"):
        script.write_text(SEEN + script.read_text())
    folders = (commands.root, temporary, own)

    def reports() -> int:
        known = (commands.root / "sweeps.db").exists() and commands.ledger.sweeps()
        return len(commands.ledger.reports(known[0].id)) if known else 0

    with own_ray(temporary) as ray:
        planted = {**PLANTED, **ray, "SWEEP_VARIABLES": "ASKED_KEY, NOT_SET", "TMPDIR": str(attempts)}
        driver = commands.start(str(file), "--plain", **planted)
        wait_for(lambda: reports() > 1 or driver.poll() is not None)
        assert driver.poll() is None, finish(driver)
        assert list(temporary.rglob("session_*")), "the files of Ray are looked at"
        assert holding(*folders) == []
        os.kill(driver.pid, signal.SIGKILL)
        finish(driver)
        assert holding(*folders) == []
        code, printed = commands.run(str(file), "--plain", **planted)
        assert code == 0, printed
        service = commands.start("serve", **planted)
        code, printed = commands.run("submit", str(other), **ray)
        assert code == 0, printed
        code, printed = commands.run("follow", "served", **ray)
        assert code == 0, printed
        service.terminate()
        code, shown = finish(service)
        assert code == 0, shown
        trial = commands.ledger.trials(commands.ledger.sweeps()[0].id)[0]
        code, listed = commands.run("export", trial.key, "--to", str(commands.folder / "exported"), **planted)
        assert code == 0 or kind == "command", listed
        assert holding(*folders, commands.folder) == []
        assert "canary" not in printed + shown + listed
    given = {"ASKED_KEY"} if kind != "program" else OF_WORKERS
    assert (own / "seen").read_text() == ",".join(sorted(given))
    left = {name for name in PLANTED if name not in given and name != "DATABASE_URL"}
    logs = [path.read_text() for path in (commands.root / "logs").rglob("*-0.log")]
    assert logs
    assert all(text.count("not passed on, since they may hold secrets") == 1 for text in logs)
    assert all(name in text for text in logs for name in left)


@needs_root
def test_another_account_reads_no_file_of_a_sweep(commands: Commands, temporary: Path) -> None:
    """Although everybody may read and write what is made by default, and enter the folder of the sweeps."""
    temporary.chmod(0o755)
    root, runtime, exported = temporary / "mlruns", temporary / "r", temporary / "exported"
    root.mkdir(mode=0o755)
    runtime.mkdir()
    file = Search("function", trials=1, pause=0.0).write(temporary / "own", "echo")
    before = os.umask(0)
    try:
        with own_ray(runtime) as ray:
            code, printed = commands.run(str(file), "--plain", SWEEP_ROOT=str(root), **ray)
            assert code == 0, printed
            ledger, where = Ledger.open(f"sqlite:///{root}/sweeps.db"), {"SWEEP_ROOT": str(root), **ray}
            (trial,) = ledger.trials(ledger.sweeps()[0].id)
            ledger.close()
            code, printed = commands.run("export", trial.key, "--to", str(exported), **where)
            assert code == 0, printed
            made = [*root.rglob("*"), *runtime.rglob("*"), exported, *exported.rglob("*")]
            kinds = {".db", ".log", ".json", ".html", ".yaml"}
            assert kinds <= {path.suffix for path in made}
            assert reached(*made) == []
    finally:
        os.umask(before)
    open_ = {str(path) for path in root.rglob("*") if not path.is_symlink() and path.lstat().st_mode & 0o077}
    assert open_ == set()


LOOKING = """
trainable: {command: [python, look.py]}
search: {says: {choice: ["nothing"]}}
training: {steps: 1, interval: 1}
objective: {minimize: val/loss}
sampler: {random: {seed: 1}}
scheduler: {none: {}}
budget: {trials: 1}
"""


def test_a_script_finds_no_secret_in_the_processes_of_the_sweep(
    commands: Commands, postgres_server: postgres.Server, temporary: Path
) -> None:
    """Neither in those above it nor in the service, the driver and the process that delivers to MLflow."""
    folder, url = commands.folder, postgres_server.empty_database()
    secrets = {
        "SWEEP_LEDGER": url,
        "SOME_API_KEY": f"canary-key-{commands.mark}",
        "MLFLOW_TRACKING_PASSWORD": f"canary-mlflow-{commands.mark}",
        "AWS_SECRET_ACCESS_KEY": f"canary-store-{commands.mark}",
        "DATABASE": f"postgresql://me:canary-address-{commands.mark}@host/x",
        "SWEEP_NOTIFY": f"http://127.0.0.1:9/canary-hook-{commands.mark}",
    }
    hidden = [value for name, value in secrets.items() if name not in {"SWEEP_LEDGER", "DATABASE"}]
    awaited = ["orchestrator.sweep serve", "orchestrator.driver", "orchestrator.tracking.deliver"]
    control = f"canary-control-{commands.mark}"
    words = {
        "secrets": [f"canary-address-{commands.mark}", *hidden, postgres.PASSWORD, control],
        "mark": f"SWEEP_TEST_MARK={commands.mark}",
        "awaited": [*awaited, control],
    }
    (folder / "words.json").write_text(json.dumps(words))
    (folder / "look.py").write_text(program("looks_for_secrets"))
    (folder / "looking.yaml").write_text(LOOKING)
    open_process = subprocess.Popen(["sleep", "300"], env={"CONTROL_API_KEY": control})
    with own_ray(temporary) as ray:
        service = commands.start("serve", **secrets, **ray)
        code, printed = commands.run("submit", str(folder / "looking.yaml"), SWEEP_LEDGER=url, **ray)
        assert code == 0, printed
        wait_for((folder / "seen.json").exists)
        code, printed = commands.run("follow", "looking", SWEEP_LEDGER=url, **ray)
        assert code == 0, printed
        service.terminate()
        assert finish(service)[0] == 0
    open_process.kill()
    open_process.wait()
    answer = json.loads((folder / "seen.json").read_text())
    found = {pid: (text, hits) for pid, (text, hits) in answer["seen"].items() if hits}
    assert found.pop(str(open_process.pid))[1] == [control], "it would have found the others"
    # Other tests that run now show the password of the database.
    others = {pid: hits for pid, hits in found.items() if words["mark"] in hits[0] or "canary" in str(hits)}
    assert others == {}
    assert len(answer["parents"]) > 1
    assert {"SOME_API_KEY", "SWEEP_LEDGER", "SWEEP_NOTIFY"}.isdisjoint(answer["own"])
    assert answer["own"]["DATABASE"] == "postgresql://host/x"
