"""A real S3 server on the loopback interface, for the tests of checkpoint stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from fsspec.core import get_filesystem_class
from moto.server import ThreadedMotoServer

BUCKET = "sweeps"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def bucket() -> Iterator[str]:
    """Run a server, to which the environment leads, for a `with` block; yield the URL of a folder."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    own = {**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    before = {name: os.environ.get(name) for name in own}  # others may be those of a test that ends earlier
    os.environ.update(own)
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    try:
        yield f"s3://{BUCKET}/checkpoints"
    finally:
        # A later server of this process would be given these objects, and its users a client of this server.
        boto3.resource("s3").Bucket(BUCKET).objects.delete()
        get_filesystem_class("s3").clear_instance_cache()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.stop()


def objects() -> list[str]:
    """Return the names of all objects in the bucket."""
    listed = boto3.client("s3").list_objects_v2(Bucket=BUCKET)
    return [each["Key"] for each in listed.get("Contents", ())]
