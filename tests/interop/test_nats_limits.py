"""What becomes of clients at the limits of a configuration, on the wire and on the monitoring pages: polymq beside nats-server."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_servers import SERVING_KINDS, NatsOptions, NatsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIMEOUT_S = 20


@contextlib.contextmanager
def served(kind: str, folder: Path, options: NatsOptions, *, clustered: bool = False) -> Iterator[NatsServer]:
    server = NatsServer(kind, "limits", folder, options)
    server.clustered = clustered
    server.start()
    try:
        yield server
    finally:
        server.stop()


def await_true(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def client(server: NatsServer, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.client_port), timeout=5)
    connection.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\n' + said + b"PING\r\n")
    heard = b""
    while b"PONG\r\n" not in heard:
        heard += (piece := connection.recv(65536))
        assert piece, heard
    return connection


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_who_takes_nothing_is_a_slow_consumer(kind: str, tmp_path: Path) -> None:
    with (
        served(kind, tmp_path, NatsOptions(more='write_deadline: "500ms"')) as server,
        client(server, b"SUB x 1\r\n"),
        client(server) as other,
    ):
        line = b"PUB x 900000\r\n" + bytes(900_000) + b"\r\n"
        for _ in range(12):
            other.sendall(line)

        def closed() -> list[str]:
            rows = server.monitored("connz?state=closed")["connections"]
            return [row["reason"] for row in rows if "Slow" in row["reason"]]

        assert await_true(closed, "nobody is given up") == ["Slow Consumer (Write Deadline)"]
        assert server.monitored("varz")["slow_consumers"] == 1
        assert server.monitored("varz").get("slow_consumer_stats", {"clients": 1})["clients"] == 1  # not there in 2.9
        assert "write_deadline" in server.log_text() or "WriteDeadline" in server.log_text()


def reload(server: NatsServer, before: str, after: str) -> None:
    text = server.configuration.read_text(encoding="utf-8")
    assert before in text
    server.configuration.write_text(text.replace(before, after), encoding="utf-8")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)


def heard_to_the_end(connection: socket.socket) -> bytes:
    heard = b""
    while piece := connection.recv(65536):
        heard += piece
    return heard


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_the_surplus_goes_when_fewer_may_be_there(kind: str, tmp_path: Path) -> None:
    with served(kind, tmp_path, NatsOptions(more="max_connections: 9")) as server, contextlib.ExitStack() as stack:
        await_true(lambda: not server.monitored("varz")["connections"], "whoever asked whether it is there stays")
        connections = [stack.enter_context(client(server)) for _ in range(5)]
        reload(server, "max_connections: 9", "max_connections: 2")
        await_true(lambda: server.monitored("varz")["connections"] == 2, "nobody goes")
        closed = [row["reason"] for row in server.monitored("connz?state=closed")["connections"]]
        assert closed.count("Maximum Connections Exceeded") == 3
        ended = select.select(connections, [], [], 5)[0]
        assert len(ended) == 3
        # nats-server drops some of these words at times.
        said = {heard_to_the_end(each) for each in ended}
        assert b"-ERR 'maximum connections exceeded'\r\n" in said
        assert said <= {b"-ERR 'maximum connections exceeded'\r\n", b""}


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_varz_has_the_times_that_hold(kind: str, tmp_path: Path) -> None:
    def shown() -> tuple[Any, ...]:
        varz = server.monitored("varz")
        return varz["auth_timeout"], varz["tls_timeout"], varz["cluster"]["auth_timeout"], varz["cluster"]["tls_timeout"]

    options = NatsOptions(authorization="timeout: 3.5", route_more="authorization { user: u, password: p, timeout: 0.5 }")
    with served(kind, tmp_path, options, clustered=True) as server:
        assert shown() == (3.5, 2, 0.5, 2)
        before = server.monitored("varz")["config_load_time"]
        reload(server, "timeout: 3.5", "timeout: 4")
        await_true(lambda: shown() == (4, 2, 0.5, 2), "nothing is another")
        assert server.monitored("varz")["config_load_time"] > before
