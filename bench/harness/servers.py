"""The servers that speak NSQ, and how each is started."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import socket
import struct
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness.process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.harness.process import Setup

__all__ = ["KINDS", "Server", "default_polymq"]

IDENTIFY = b'{"feature_negotiation":true,"client_id":"bench","heartbeat_interval":30000}'


class Server(ServerProcess):
    """A server with NSQ's doors."""

    def __init__(
        self, kind: str, setup: Setup, *, mem_queue_size: int = 1_000_000, wrapper: list[str] | None = None, auth: str = ""
    ) -> None:
        super().__init__(kind, setup, wrapper=wrapper)
        self.tcp = f"127.0.0.1:{setup.port_base}"
        self.http = f"127.0.0.1:{setup.port_base + 1}"
        # polymq's own HTTP door, from which Spark reads.
        self.log_door = f"127.0.0.1:{setup.port_base + 2}"
        self.mem_queue_size = mem_queue_size
        # The address of an authentication server; clients must log in then.
        self.auth = auth

    def command(self) -> list[str]:
        return KINDS[self.kind](self)

    def accepts(self) -> bool:
        host, port = self.tcp.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"  V2IDENTIFY\n" + struct.pack(">i", len(IDENTIFY)) + IDENTIFY)
                return len(connection.recv(8)) == 8
        except OSError:
            return False

    def post(self, paths: Iterable[str]) -> None:
        """POST to the HTTP API (`/channel/create?…`), all over one connection; raises on any status but 200."""
        connection = http.client.HTTPConnection(self.http, timeout=30)
        with contextlib.closing(connection):
            for path in paths:
                connection.request("POST", path, b"")
                with connection.getresponse() as response:
                    answer = response.read()
                if response.status != HTTPStatus.OK:
                    raise OSError(f"{self.kind} answers {path} by {response.status} {answer[:200]!r}")


def nsqd_command(server: Server) -> list[str]:
    return [
        server.setup.peer("nsqd"),
        f"-data-path={server.data}",
        f"-tcp-address={server.tcp}",
        f"-http-address={server.http}",
        f"-mem-queue-size={server.mem_queue_size}",
        "-log-level=error",
        *([f"-auth-http-address={server.auth}"] if server.auth else []),
    ]


def polymq_command(server: Server) -> list[str]:
    return [
        *server.setup.polymq,
        "serve",
        "--data",
        str(server.data),
        "--nsq",
        server.tcp,
        "--nsq-http",
        server.http,
        "--http",
        server.log_door,
        "--nsq-lookup",
        "off",
        "--nsq-lookup-http",
        "off",
        *(["--set", f"nsq.auth_http_addresses={server.auth}"] if server.auth else []),
        *server.setup.polymq_extra,
    ]


def polymq_fsync_command(server: Server) -> list[str]:
    """The other durability point: an answer waits for the disk."""
    return [*polymq_command(server), "--set", "store.durability=fsync"]


def loop_command(server: Server) -> list[str]:
    """No broker at all: an event loop that answers OK, the floor under every round trip."""
    return [sys.executable, str(Path(__file__).with_name("loop_floor.py")), server.tcp]


KINDS = {"nsqd": nsqd_command, "polymq": polymq_command, "polymq-fsync": polymq_fsync_command, "loop": loop_command}


def default_polymq() -> list[str]:
    """The command that is installed beside this Python, else the package run from the source tree."""
    installed = Path(sys.executable).with_name("polymq")
    given = os.environ.get("POLYMQ_COMMAND")
    if given:
        return shlex.split(given)
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "polymq.cli"]
