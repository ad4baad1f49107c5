"""nsqd's own bench tools run against the server: they check little, and panic at the first error frame."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.servers import Running

BIN = Path(__file__).resolve().parents[2] / ".peers" / "bin"


def run_tool(name: str, server: Running, *options: str) -> str:
    program = BIN / name
    if not program.exists():
        pytest.fail(f"{program} is missing: run peers/build.sh")
    command = [str(program), f"-nsqd-tcp-address={server.tcp}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "panic" not in done.stderr
    return done.stderr


def test_bench_writer_then_bench_reader(server: Running, topic: str) -> None:
    assert server.request("POST", f"/topic/create?topic={topic}")[0] == 200
    assert server.request("POST", f"/channel/create?topic={topic}&channel=ch")[0] == 200
    run_tool("bench_writer", server, "-runfor=500ms", f"-topic={topic}", "-size=200", "-batch-size=100")
    written = server.topic(topic)["message_count"]
    assert written > 0
    assert written % 100 == 0
    run_tool("bench_reader", server, "-runfor=1s", f"-topic={topic}", "-channel=ch", "-rdy=2500", "-size=200")
    deadline = time.monotonic() + 10
    while server.channel(topic, "ch")["client_count"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    left = server.channel(topic, "ch")
    assert left["message_count"] == written
    assert left["depth"] + left["in_flight_count"] < written, "the reader has finished some"


def test_bench_writer_one_message_at_a_time(server: Running, topic: str) -> None:
    assert server.request("POST", f"/topic/create?topic={topic}")[0] == 200
    assert server.request("POST", f"/channel/create?topic={topic}&channel=ch")[0] == 200
    run_tool("bench_writer", server, "-runfor=300ms", f"-topic={topic}", "-size=100", "-batch-size=1")
    assert server.topic(topic)["message_count"] > 0
