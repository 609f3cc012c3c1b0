"""Code that comes over HTTP runs as the account of its owner, on real accounts, and reads nothing of others.

The service runs in a mount namespace of its own, in which /etc/passwd and /etc/group have two more accounts,
and its Python is where every account can reach it: nothing of the machine is changed.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from orchestrator.api import user_admin
from orchestrator.client.following import follow
from orchestrator.client.http import HttpBackend
from orchestrator.errors import BadInput
from tests.end_to_end.commands import Commands, wait_for
from tests.programs import program

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, and Linux's namespaces"
    ),
]

ACCOUNTS = {"ada": 47_011, "bob": 47_012}
GROUP, GROUP_ID = "sweepers", 47_010


FILE = """\
trainable: {code}
search: {{rate: {{uniform: [0, 1]}}}}
training: {{steps: 2, interval: 1}}
objective: {{minimize: val/loss}}
budget: {{trials: 1}}
resources: {{cpu: 1}}
"""


@pytest.fixture
def homes() -> Iterator[Path]:
    """The folders of Ada and of Bob, each closed to the other, below one that both can enter."""
    with tempfile.TemporaryDirectory(prefix="homes-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for account, uid in ACCOUNTS.items():
            home = folder / account
            home.mkdir(mode=0o700)
            (home / "train.py").write_text(program("trains_as_a_user"))
            (home / "secret").write_text(f"of {account}")
            for path in (*home.iterdir(), home):
                os.chown(path, uid, uid)
        yield folder


def in_namespace(folder: Path) -> list[str]:
    """Return the words before a command that runs where the accounts are, and where they reach its Python."""
    added = {"passwd": "", "group": f"{GROUP}:x:{GROUP_ID}:{','.join(ACCOUNTS)}\n"}
    for name, uid in ACCOUNTS.items():
        added["passwd"] += f"{name}:x:{uid}:{uid}::/nonexistent:/bin/sh\n"
        added["group"] += f"{name}:x:{uid}:\n"
    lines = []
    for name, more in added.items():
        (folder / name).write_text(Path("/etc", name).read_text() + more)
        (folder / name).chmod(0o644)
        lines.append(f"mount --bind {shlex.quote(str(folder / name))} /etc/{name}")
    (folder / "python").mkdir()
    own, kept = shlex.quote(sys.base_prefix), shlex.quote(str(folder / "python"))
    home = Path(sys.base_prefix).parents[-2]  # such as /root, which no account can enter
    if home.stat().st_mode & 0o001 == 0:
        lines += [
            f"mount --bind {own} {kept}",
            f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(home))}",
            f"mkdir -p {own}",
            f"mount --bind {kept} {own}",
        ]
    script = "\n".join([*lines, 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh"]


def ask(address: str, token: str, name: str, code: dict[str, Any]) -> tuple[int, Any]:
    """Submit a sweep, and return the status and the document of the answer."""
    body = json.dumps({"name": name, "text": FILE.format(code=json.dumps(code)), "profile": None})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)) as connection:
        connection.request("POST", "/api/v1/sweeps", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_command_and_a_function_run_as_their_owners(
    commands: Commands, homes: Path, temporary: Path
) -> None:
    commands.root.mkdir(mode=0o700)
    tokens = {name: user_admin.add(name, root=commands.root)[1] for name in (*ACCOUNTS, "eve")}
    ledger = commands.root / "sweeps.db"
    for name, other in (("ada", "bob"), ("bob", "ada")):
        words = homes / name / "arguments"
        words.write_text(f"{name} {homes / other / 'secret'} {ledger}")
        words.chmod(0o644)
    service = subprocess.Popen(
        [
            *in_namespace(temporary),
            *(sys.executable, "-m", "orchestrator.sweep", "serve", "--http", "0", "--stop-drivers"),
            *("--code-as-users", GROUP, "--root", str(commands.root)),
        ],
        cwd=commands.project,
        env={
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "SWEEP_TEST_MARK": commands.mark,
            "SWEEP_WARM": "0",
            "SWEEP_RAY_LINGER": "0",
            "SWEEP_RUNTIME": str(temporary / "runtime"),
            "RAY_TMPDIR": str(temporary),
            "CANARY_PASSWORD": "of the service",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        address = service.stdout.readline().split()[5].removesuffix("/api/v1;")
        given: dict[str, dict[str, Any]] = {
            "ada": {"command": [sys.executable, "train.py"], "folder": str(homes / "ada")},
            "bob": {"function": "train.py:train", "folder": str(homes / "bob")},
        }
        sweeps = {name: ask(address, tokens[name], name, code) for name, code in given.items()}
        assert [status for status, _ in sweeps.values()] == [202, 202], sweeps
        refused = {
            "a folder of another": ask(address, tokens["bob"], "other", given["ada"]),
            "no account": ask(address, tokens["eve"], "none", given["ada"]),
            "a program": ask(address, tokens["ada"], "net", {"program": "net.py:Net", "folder": str(homes)}),
        }
        assert {status for status, _ in refused.values()} == {422}, refused
        for name, (_, submitted) in sweeps.items():
            backend, sweep_id = HttpBackend(address, tokens[name]), submitted["id"]
            wait_for(lambda: backend.status(sweep_id).state in {"COMPLETE", "FAILED"}, 240)  # noqa: B023 - called at once
            shown: list[str] = []
            follow(backend, sweep_id, shown.append)
            assert backend.status(sweep_id).state == "COMPLETE", "".join(shown)
        with pytest.raises(BadInput, match="owner of the sweep or an admin"):
            HttpBackend(address, tokens["bob"]).extend(sweeps["ada"][1]["id"], trials=2)
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=120)
    for name, uid in ACCOUNTS.items():
        file = homes / name / "seen.json"
        seen = json.loads(file.read_text())
        assert file.stat().st_uid == uid
        assert (seen.pop("owner"), seen.pop("uid")) == (name, uid)
        assert sorted(seen.pop("groups")) == [GROUP_ID, uid]
        assert len(seen) > 8, "processes of the service were looked at"
        assert set(seen.values()) == {"PermissionError"}, seen
