"""The broker as a process: started, asked, stopped, started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from polymq.cli.nats_signal import send
from polymq.config_sections import ServerSettings, Settings
from polymq.server.serve import shell_settings
from polymq.server.settings import ShellSettings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PROGRAM = """
import sys
import time
from pathlib import Path
from polymq.cli.nats_signal import send
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
    assert (settings.connections_max, settings.connections_spare) == (8, 4)
    assert shell_settings(Settings(), descriptors=1_000_000) == ShellSettings()


def test_no_more_connections_are_taken_than_descriptors_allow(caplog: pytest.LogCaptureFixture) -> None:
    wanted = Settings(server=ServerSettings(connections_max=12_000))
    assert shell_settings(wanted, descriptors=13_228).connections_max == 12_000
    assert not caplog.records
    assert shell_settings(wanted, descriptors=13_227).connections_max == 11_999
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "at most 11999 connections" in record.getMessage()
    assert "ulimit -n" in record.getMessage()
    assert "to 13228 or more" in record.getMessage()


def start_nats_server(folder: Path, file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polymq.cli", "nats-server", "-c", str(file), "--polymq-set", f"server.data={folder / 'data'}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def await_line(process: subprocess.Popen[str], kept: Path, text: str) -> None:
    give_up_at = time.monotonic() + 30
    while not kept.exists() or text not in kept.read_text():
        assert time.monotonic() < give_up_at, kept.read_text()
        assert process.poll() is None, process.stderr
        time.sleep(0.02)


def test_in_place_of_nats_server_the_log_and_the_process_id_go_to_its_files(tmp_path: Path) -> None:
    file, kept, who = tmp_path / "server.conf", tmp_path / "log", tmp_path / "pid"
    file.write_text(f'listen: "127.0.0.1:-1"\nlog_file: "{kept}"\npid_file: "{who}"\n')
    with start_nats_server(tmp_path, file) as process:
        await_line(process, kept, "serving")
        assert who.read_text() == str(process.pid)
        process.terminate()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert "NATS on 127.0.0.1:" in kept.read_text()


def test_in_place_of_nats_server_it_reads_its_file_again_and_opens_its_log_anew(tmp_path: Path) -> None:
    file, kept, moved, who = tmp_path / "server.conf", tmp_path / "log", tmp_path / "log.1", tmp_path / "pid"
    text = f'listen: "127.0.0.1:-1"\nlog_file: "{kept}"\npid_file: "{who}"\n'
    file.write_text(text)
    with start_nats_server(tmp_path, file) as process:
        await_line(process, kept, "serving")
        file.write_text(text + "max_payload: 2000\nserver_name: other\n")
        process.send_signal(signal.SIGHUP)
        await_line(process, kept, "needs a restart, and stays as it was: server_name")
        assert "reloaded: max_payload" in kept.read_text()
        file.write_text(text + "max_paylaod: 2000\n")
        send(f"reload={who}")
        await_line(process, kept, "the configuration is not reloaded")
        assert "server.conf:4: max_paylaod: nats-server has no such key" in kept.read_text()
        kept.rename(moved)
        send(f"reopen={process.pid}")
        await_line(process, kept, "the log file is opened anew")
        send(f"stop={process.pid}")
        assert process.wait(30) == 0
    assert "stopped" not in moved.read_text()
    assert "stopped" in kept.read_text()


def test_what_is_not_on_the_disk_is_not_said_to_be(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stderr is not None
    try:
        while "serving" not in (line := process.stderr.readline()):
            assert line
        shutil.rmtree(tmp_path / "data")
        ask(tmp_path / "nsq", b"  V2PUB topic\n\0\0\0\1x", b"\0\0\0")
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(20) == 1, rest
        assert "stopped; not everything is on the disk" in rest
        assert "nothing can be published" in rest.partition("stopped;")[0], "said when it was found, too"
        assert "everything is on the disk\n" not in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
