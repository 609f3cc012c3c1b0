"""Send requests to ports of a host, and print the answers: `python stranger.py HOST TOKEN PORT...`.

Prints a JSON object that maps each port to its answers by request: an HTTP status, or the name of a gRPC
code. An empty TOKEN sends the requests without a token.
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
"""At least one method of every gRPC service of Ray's processes."""

SECONDS = 5.0


def answers_of(host: str, port: int, token: str) -> dict[str, int | str]:
    """Return the answers of a port by request, without the requests that it does not understand."""
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return {**_pages(host, port, bearer), **_methods(host, port, bearer)}


def _pages(host: str, port: int, bearer: dict[str, str]) -> dict[str, int | str]:
    statuses: dict[str, int | str] = {}
    for page in PAGES:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        try:
            connection.request("GET", page, headers=bearer)
            statuses[page] = connection.getresponse().status
        except (http.client.HTTPException, OSError):
            return {}
        finally:
            connection.close()
    return statuses


def _methods(host: str, port: int, bearer: dict[str, str]) -> dict[str, int | str]:
    codes: dict[str, int | str] = {}
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=SECONDS)
        except grpc.FutureTimeoutError:
            return {}
        for method in METHODS:
            try:
                channel.unary_unary(f"/{method}")(b"", timeout=SECONDS, metadata=list(bearer.items()))
                codes[method] = "OK"
            except grpc.RpcError as error:
                codes[method] = error.code().name
    return {method: code for method, code in codes.items() if code != "UNIMPLEMENTED"}


if __name__ == "__main__":
    host, token, *ports = sys.argv[1:]
    sys.stdout.write(json.dumps({port: answers_of(host, int(port), token) for port in ports}))
