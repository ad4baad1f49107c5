"""Lame duck mode as nats-server has it: SIGUSR2, and clients are told, let go, and the process ends by itself."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_dialogue import QUIET, Stage, wishes
from tests.interop.nats_route_peer import HELLO
from tests.interop.nats_route_peer import Talk as Peer
from tests.interop.nats_servers import POLYMQ, SERVING_KINDS, NatsOptions, NatsServer, nats_cluster

if TYPE_CHECKING:
    from pathlib import Path

# The shortest duration that nats-server takes is half a minute; the first of few goes as soon as the grace period is over.
OPTIONS = NatsOptions(more='lame_duck_duration: "30s", lame_duck_grace_period: "1s"')


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_clients_are_told_and_let_go(kind: str, tmp_path: Path) -> None:
    server = NatsServer(kind, "lame", tmp_path, OPTIONS)
    server.start()
    stage = Stage(server, "lame")
    process = server.process
    assert process is not None
    try:
        talk = stage.connect(connect=wishes(verbose=False, protocol=1, headers=True))
        old = stage.connect(connect=QUIET)
        old.say(b"SUB lame 1\r\n")
        process.send_signal(signal.SIGUSR2)
        told, deadline = b"", time.monotonic() + 10
        while b'"ldm":true' not in told:
            assert time.monotonic() < deadline, told
            told += b"".join(data for _, data in talk.hear_for(0.05))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.client_port), timeout=2)
        assert talk.say(b"PUB lame 1\r\nx\r\n") == "PONG\\r\\n [open]"
        assert old.say(b"") == "MSG lame 1 1\\r\\nx\\r\\nPONG\\r\\n [open]"
        deadline = time.monotonic() + 10
        open_talks = {talk, old}
        while open_talks:  # at most a second apart, although 29 are left
            assert time.monotonic() < deadline, f"{len(open_talks)} are not let go"
            for each in list(open_talks):
                each.hear_for(0.05)
                if each.closed:
                    open_talks.discard(each)
    finally:
        stage.end()
        # The rest is gone, so there is nothing more to wait for, or little.
        process.terminate()
        process.wait(20)
        server.process = None


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_without_clients_it_ends_at_once(kind: str, tmp_path: Path) -> None:
    server = NatsServer(kind, "lonely", tmp_path, OPTIONS)
    server.start()
    assert server.process is not None
    deadline = time.monotonic() + 10
    while server.monitored("varz")["connections"]:  # whoever asked whether it is there
        assert time.monotonic() < deadline
        time.sleep(0.02)
    server.process.send_signal(signal.SIGUSR2)
    assert server.process.wait(15) in {0, 1}
    server.process = None


@pytest.mark.parametrize("kind", SERVING_KINDS)
def test_other_servers_are_told(kind: str, tmp_path: Path) -> None:
    """By an INFO of the server's own, while it has clients; what crosses afterwards crosses as before."""
    server = NatsServer(kind, "lame", tmp_path, OPTIONS)
    server.clustered = True
    server.start()
    stage = Stage(server, "lame")
    process = server.process
    assert process is not None
    try:
        with contextlib.closing(Peer(server.route_port)) as peer:
            told = peer.greeting()
            assert not told.get("ldm", False)
            peer.caught_up(HELLO)
            client = stage.connect(connect=QUIET)
            client.say(b"SUB lame 1\r\n")
            peer.hear_until(b"RS+ $G lame\r\n")
            process.send_signal(signal.SIGUSR2)
            heard = peer.hear_until(b'"ldm":true')
            while not heard.endswith(b"\r\n"):
                peer.hear(1)
                heard += peer.heard
                peer.heard = b""
            again = next(json.loads(line[5:]) for line in heard.split(b"\r\n") if line.startswith(b"INFO "))
            assert (again["server_id"], again["ldm"]) == (told["server_id"], True)
            peer.caught_up(b"RMSG $G lame 1\r\nx\r\n")
            assert client.say(b"") == "MSG lame 1 1\\r\\nx\\r\\nPONG\\r\\n [open]"
    finally:
        stage.end()
        process.terminate()
        process.wait(20)
        server.process = None


@pytest.mark.parametrize("kinds", [("nats-server", "nats-server-2.9"), (POLYMQ, "nats-server"), ("nats-server-2.9", POLYMQ)], ids="+".join)
def test_clients_of_other_servers_are_not_sent_there(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """The first one goes: clients of the second learn that it is no place to go to."""
    with nats_cluster(kinds, tmp_path, OPTIONS) as (lame, other):
        stage, far = Stage(lame, "lame"), Stage(other, "far")
        assert lame.process is not None
        try:
            stage.connect(connect=QUIET)
            talk = far.connect(connect=wishes(verbose=False, protocol=1, headers=True))
            talk.hear_for(0.2)
            lame.process.send_signal(signal.SIGUSR2)
            heard, deadline = b"", time.monotonic() + 10
            while b"INFO" not in heard or not heard.endswith(b"\r\n"):
                assert time.monotonic() < deadline
                heard += b"".join(data for _, data in talk.hear_for(0.1))
            urls = json.loads(heard.split(b"INFO ")[-1])["connect_urls"] if b"connect_urls" in heard else []
            assert lame.address not in urls
        finally:
            stage.end()
            far.end()
            lame.process.terminate()
            lame.process.wait(20)
            lame.process = None
