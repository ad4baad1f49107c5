"""The job that the Go program over nats.go understands (`peers/nats_go/`), and how to run it.

A job is a JSON object on standard input, its answer a JSON object on standard output, exit status 0:

    servers             URLs; all checks but `several_connections` and `discovered` are about the first one
    checks              names of checks, in order; each makes its own connections
    prefix              what all subjects of the job begin with
    user, password      as the library's option UserInfo; "": not given
    token               as the option Token
    nkey_seed_file      a file with the seed of a key
    tls_root_file       who vouches for the server
    tls_cert_file       the client's certificate and key
    tls_first           TLS before INFO
    answer              {"results": {check: ""}}: a text says what went wrong
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_servers import PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.nats_servers import NatsServer

__all__ = ["CLUSTER_CHECKS", "SINGLE_CHECKS", "go_results"]

PROGRAM = PEERS / "nats-go-client"
JOB_TIMEOUT_S = 120.0
SINGLE_CHECKS = (
    "async",
    "sync",
    "channel",
    "unsubscribe",
    "auto_unsubscribe",
    "request_reply",
    "no_responders",
    "context",
    "headers",
    "wildcards",
    "queue_group",
    "drain_subscription",
    "drain_connection",
    "flush",
    "service",
    "closed",
    "reconnect",
    "retry_failed_connect",
)
CLUSTER_CHECKS = ("several_connections", "discovered")

_numbers = itertools.count()


def go_results(servers: Sequence[NatsServer], checks: Sequence[str], **options: str | bool) -> dict[str, str]:
    """What went wrong, by check; a check that went well says nothing."""
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: run peers/build.sh")
    prefix = f"go-{os.getpid()}-{next(_numbers)}"
    job = {"servers": [server.url for server in servers], "checks": list(checks), "prefix": prefix, **options}
    done = subprocess.run([str(PROGRAM)], input=json.dumps(job), capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["results"]
    assert set(found) == set(checks)
    return {name: said for name, said in found.items() if said}
