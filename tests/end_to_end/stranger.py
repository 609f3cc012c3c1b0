"""What the ports of a host answer to somebody on its network: `python stranger.py HOST TOKEN PORT...`.

Prints a JSON object: of each port what every request got, an HTTP status or the name of a gRPC code. Without
a token, TOKEN is empty.
"""

from __future__ import annotations

import http.client
import json
import sys

import grpc

PAGES = (
    "/",
    "/metrics",
    "/api/version",
    "/api/jobs/",
    "/logical/actors",
    "/api/v0/nodes",
    "/nodes?view=summary",
    "/api/healthz",
)
METHODS = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.InternalKVGcsService/InternalKVKeys",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.NodeManagerService/GetSystemConfig",
    "ray.rpc.ObjectManagerService/Pull",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "ray.rpc.ReporterService/GetTraceback",
    "ray.rpc.LogService/ListLogs",
    "ray.rpc.RayletDriver/ClusterInfo",
    "opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
)
"""One or more of every service that Ray's processes have."""

SECONDS = 5.0


def asked(host: str, port: int, token: str) -> dict[str, int | str]:
    """Return what a port answers to all these requests; what it does not understand is left out."""
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return {**_pages(host, port, bearer), **_methods(host, port, bearer)}


def _pages(host: str, port: int, bearer: dict[str, str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for page in PAGES:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        try:
            connection.request("GET", page, headers=bearer)
            found[page] = connection.getresponse().status
        except (http.client.HTTPException, OSError):
            return {}
        finally:
            connection.close()
    return found


def _methods(host: str, port: int, bearer: dict[str, str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SECONDS)
        except grpc.FutureTimeoutError:
            return {}
        for method in METHODS:
            try:
                channel.unary_unary(f"/{method}")(b"", timeout=SECONDS, metadata=list(bearer.items()))
                found[method] = "OK"
            except grpc.RpcError as error:
                found[method] = error.code().name
    return {method: code for method, code in found.items() if code != "UNIMPLEMENTED"}


if __name__ == "__main__":
    place, secret, *ports = sys.argv[1:]
    sys.stdout.write(json.dumps({port: asked(place, int(port), secret) for port in ports}))
