"""The examples of docs/CLIENTS_PYTHON.md, each as a program of its own, against nsqd with nsqlookupd and against polymq.

Those of RocketMQ are run by test_rocketmq_own_client.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.interop.auth_server import auth_server, good
from tests.interop.lookup import directory, found, node, started, until
from tests.interop.servers import KINDS, ROOT, running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.interop.servers import Running
    from tests.unit.wire.authority import Authority

PAGE = ROOT / "docs" / "CLIENTS_PYTHON.md"
# Those of PHPMQ and RocketMQ, behind them, have tests of their own.
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("\n## PHPMQ\n")[0], re.DOTALL)
PUBLISHED = ["AA7 delayed", "BA9 boards", "DL1149 departed", "UA2 landed"]
# Python's own writes the end of a line by itself, and another thread's line may come between.
PRINT = """
def print(*words):
    import sys
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
"""
DIRECTORY_OF = {"nsqd": "nsqlookupd", "polymq": "polymq"}


def run(example: str, names: Mapping[str, str], lines: int) -> list[str]:
    """Run an example until it has printed so many lines; returns them, sorted."""
    for name, replacement in names.items():
        example = example.replace(name, replacement)
    program = subprocess.Popen([sys.executable, "-u", "-c", PRINT + example], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout is not None
    try:
        printed = [program.stdout.readline() for _ in range(lines)]
        if not all(printed):
            pytest.fail(program.communicate(timeout=20)[1])
    finally:
        program.terminate()
        program.communicate(timeout=20)
    return sorted(each.rstrip("\n") for each in printed)


def make_channels(server: Running) -> None:
    """Have them all get all messages."""
    server.request("POST", "/topic/create?topic=flights")
    for channel in ("board", "archive", "script", "threads"):
        assert server.request("POST", f"/channel/create?topic=flights&channel={channel}")[0] == 200


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_examples(kind: str, tmp_path: Path) -> None:
    publish, consume, subscribe, script, threads, _ = EXAMPLES
    known = directory(DIRECTORY_OF[kind], tmp_path)
    with started(known):
        server = node(kind, tmp_path, known.running.tcp)
        with started(server):
            make_channels(server.running)
            until(lambda: found(known.running, "flights"))
            names = {"127.0.0.1:4150": server.running.tcp, "127.0.0.1:4161": known.running.http}
            assert run(publish, names, 1) == ["published"]
            assert run(consume, names, 4) == [f"{each} 1" for each in PUBLISHED]
            assert run(subscribe, names, 4) == PUBLISHED
            assert run(script, names, 6) == sorted([*PUBLISHED, "LH400 landed", "no more"])
            assert run(threads, names, 5) == sorted([*PUBLISHED, "LH400 landed"])
            server.running.settled("flights", "script")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_the_secret_example(kind: str, tmp_path: Path, authority: Authority) -> None:
    certificate, mine = str(authority.issue("localhost")), str(authority.issue("client"))
    options = {
        "tls_cert": certificate,
        "tls_key": certificate,
        "tls_root_ca_file": str(authority.certificate),
        "tls_client_auth_policy": "require-verify",
    }
    with auth_server() as auth, running(kind, tmp_path, options=options | {"auth_http_addresses": auth.address}) as server:
        auth.answers["a secret"] = good()
        names = {"127.0.0.1:4150": server.tcp, "client.pem": mine, "ca.pem": str(authority.certificate)}
        assert run(EXAMPLES[-1], names, 1) == ["secret flight"]
        assert auth.count("a secret") >= 1
