"""The broker as a process: started, asked, stopped, started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from polymq.config_sections import ServerSettings, Settings
from polymq.server.serve import shell_settings
from polymq.server.settings import ShellSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROGRAM = """
import sys
from pathlib import Path
from polymq.config_sections import NsqSettings, ServerSettings, Settings
from polymq.config_values import UnixAddress
from polymq.server.serve import run

folder = Path(sys.argv[1])
nsq = NsqSettings(tcp=UnixAddress(str(folder / "nsq")), http=UnixAddress(str(folder / "http")), lookup_tcp=None, lookup_http=None)
sys.exit(run(Settings(server=ServerSettings(data=folder / "data", http=UnixAddress(str(folder / "door"))), nsq=nsq)))
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def ask(path: Path, data: bytes, until: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(data)
        answer = b""
        while until not in answer:
            piece = client.recv(65536)
            if not piece:
                break
            answer += piece
        return answer


def serve_until_stopped(folder: Path, publish: bytes) -> bytes:
    process = start(folder)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "serving" in line:
            break
    try:
        answer = ask(folder / "nsq", b"  V2PUB topic\n" + len(publish).to_bytes(4, "big") + publish, b"OK")
        assert answer == b"\0\0\0\6\0\0\0\0OK", lines
        statistics = ask(folder / "http", b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"never")
        topics = ask(folder / "door", b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"never")
        assert b'"name":"topic"' in topics
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(20) == 0, rest
        assert "everything is on the disk" in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    return statistics


def test_it_serves_stops_and_serves_again(tmp_path: Path) -> None:
    assert b'"depth":1,' in serve_until_stopped(tmp_path, b"hello")
    assert b'"depth":2,' in serve_until_stopped(tmp_path, b"again")


def test_settings_reach_the_shell() -> None:
    settings = shell_settings(Settings(server=ServerSettings(spin_ns=7, connections_max=8)), descriptors=100)
    assert settings.spin.spin_ns == 7
    assert settings.connections_max == 8
    assert shell_settings(Settings(), descriptors=1_000_000) == ShellSettings()


def test_no_more_connections_are_taken_than_descriptors_allow(caplog: pytest.LogCaptureFixture) -> None:
    wanted = Settings(server=ServerSettings(connections_max=12_000))
    assert shell_settings(wanted, descriptors=13_100).connections_max == 12_000
    assert not caplog.records
    assert shell_settings(wanted, descriptors=13_099).connections_max == 11_999
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "at most 11999 connections" in record.getMessage()
    assert "ulimit -n" in record.getMessage()
    assert "to 13100 or more" in record.getMessage()
