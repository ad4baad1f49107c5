"""README.md's few lines of NATS, as a program of their own, against polymq and against real servers."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_servers import SERVING_KINDS, nats_server
from tests.interop.servers import ROOT, command, free_ports

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:4222"
(LINES,) = re.findall(r"```python\n([^`]*nats\.connect.*?)```", TEXT, re.DOTALL)
(COMMAND,) = re.findall(r"`polymq (serve --nats \S+)`", TEXT)
WHOLE = """
import asyncio
import nats

async def main():
{lines}
    await client.close()

asyncio.run(main())
"""
TIMEOUT_S = 30


def printed(address: str) -> str:
    program = WHOLE.format(lines=textwrap.indent(LINES.replace(ADDRESS, address), "    "))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_the_first_steps(kind: str, tmp_path: Path) -> None:
    assert ADDRESS in LINES
    with nats_server(kind, tmp_path) as server:
        assert printed(server.address) == "flights.BA9 b'boarding'\n"


def test_the_command_opens_nats(tmp_path: Path) -> None:
    *ports, port = free_ports(4)
    address = f"127.0.0.1:{port}"
    flags = [word.replace(ADDRESS, address) for word in shlex.split(COMMAND)[1:]]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command("polymq", tmp_path / "data", ports, 1000), *flags], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
                break
            time.sleep(0.02)
        assert printed(address) == "flights.BA9 b'boarding'\n"
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
