"""The verb `mcp`, in its own module, because the SDK of the protocol is an extra."""

from __future__ import annotations

from importlib.util import find_spec

from orchestrator.cli.options import Root, Server, backend_of
from orchestrator.client.http import HttpBackend
from orchestrator.errors import BadInput
from orchestrator.storage.paths import DEFAULT_ROOT


def mcp(server: Server = None, root: Root = DEFAULT_ROOT) -> None:
    """Serve the Python client as tools for an agent (MCP), over standard input and output.

    With `--server`, the tools have the role and the limits of the user of SWEEP_TOKEN. The server ends with
    its standard input.

    Example:

        sweep mcp --root mlruns
    """
    if find_spec("mcp") is None:
        remedy = "Install it with `pip install 'rotrnn-sweeps[agents]'`."
        raise BadInput("`mcp`", "needs the SDK of the Model Context Protocol", "no package mcp", remedy)
    backend = backend_of(server, root)
    if isinstance(backend, HttpBackend):
        backend.call("GET", "/me")  # a wrong address or token ends the command, not each tool
    from orchestrator.client.agent_tools import agent_server

    agent_server(backend).run("stdio")
