"""What other servers, or whoever says to be one, can do to polymq at its route port: its memory, its log, and whether it serves afterwards.

Each test has a server of its own, so that the peak of its memory is that of the test. The bounds have ample room above what was
measured; what they exclude is growth with what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polymq.limits import ROUTE_HEARSAY_MAX, ROUTE_PENDING_SIZE_BYTES_MAX
from polymq.protocols.nats.problems import CloseReason
from tests.interop.nats_clients import connected
from tests.interop.nats_route_peer import HELLO, PING, TIMEOUT_S, Talk, await_no_routes, connect, hello, info
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, NatsOptions, NatsServer, await_mesh, ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

NEW = NATS_KINDS[0]
MIB = 1 << 20
STORM_COUNT = 500_000
STORM_BYTES_PER_ENTRY_MAX = 1_500
FLOOD_COUNT = 1_000
# What a flood may add to the log: a few lines for each sort of thing that happened.
LINES_MAX = 30
ENDLESS_SIZE_BYTES = 999_999_999  # real servers read sizes of nine digits


class Watched:
    """A server, and what it takes."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self._status = Path(f"/proc/{server.process.pid if server.process else 0}/status")
        self._lines_before = self._line_count()

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes in memory; with VmHWM, the most that there ever were."""
        found = re.search(rf"{name}:\s+(\d+) kB", self._status.read_text())
        assert found
        return int(found[1]) << 10

    def new_lines(self) -> int:
        """How many lines have been logged since the test began."""
        return self._line_count() - self._lines_before

    def _line_count(self) -> int:
        return self.server.log_text().count("\n")

    def descriptor_count(self) -> int:
        """How many files and connections are open."""
        return len(list((self._status.parent / "fd").iterdir()))

    def interest_of_routes(self) -> int:
        """What other servers want here."""
        return sum(each["subscriptions"] for each in self.server.monitored("routez")["routes"] or [])

    def serves(self) -> None:
        """Clients get what they want, and so does a server that joins now; what it brings reaches them."""
        peer = Talk(self.server.route_port)
        with client(self.server) as one, contextlib.closing(peer):
            said(one, b"SUB here.> 1\r\nPING\r\n", b"PONG\r\n")
            peer.say(hello("GOOD") + b"RS+ $G there.>\r\n")
            peer.caught_up()
            said(one, b"PUB here.a 1\r\n1\r\n", b"MSG here.a 1 1\r\n1\r\n")
            peer.say(b"RMSG $G here.b 1\r\n2\r\n")
            said(one, b"", b"MSG here.b 1 1\r\n2\r\n")
            one.sendall(b"PUB there.c 1\r\n3\r\n")
            peer.hear_until(b"RMSG $G there.c 1\r\n3\r\n")


@contextlib.contextmanager
def client(server: NatsServer) -> Iterator[socket.socket]:
    """A client of few words."""
    with socket.create_connection(("127.0.0.1", server.client_port), timeout=TIMEOUT_S) as connection:
        said(connection, b'CONNECT {"verbose":false}\r\nPING\r\n', b"PONG\r\n")
        yield connection


def said(connection: socket.socket, data: bytes, wanted: bytes) -> None:
    """Say it, and hear until this has come."""
    connection.sendall(data)
    heard = b""
    while wanted not in heard:
        more = connection.recv(65_536)
        assert more, heard
        heard += more


@contextlib.contextmanager
def watched(folder: Path, *, route_more: str = "", more: str = "") -> Iterator[Watched]:
    """A polymq with a route port; it must serve when the test is over."""
    server = NatsServer(POLYMQ, "abused", folder, NatsOptions(route_more=route_more, more=more))
    server.clustered = True
    with ending([server]):
        server.start()
        found = Watched(server)
        found.serves()
        await_no_routes(server)
        found = Watched(server)
        yield found
        found.serves()
        assert "Traceback" not in server.log_text()


def storm(verb: bytes, tail: bytes = b"") -> bytes:
    return b"".join(b"%b $G storm.%d.x%b\r\n" % (verb, number, tail) for number in range(STORM_COUNT))


def test_a_storm_of_interest(tmp_path: Path) -> None:
    """Half a million subjects come and go, with the connection and line by line: a client is served, and the second time needs no more."""
    coming, going = storm(b"RS+"), storm(b"RS-")
    with watched(tmp_path) as found, client(found.server) as one:
        peaks = []
        for ends in ("the connection", "RS-"):
            with contextlib.closing(Talk(found.server.route_port)) as peer:
                before = found.memory()
                peer.say(HELLO + coming)
                said(one, b"SUB meanwhile 1\r\nPUB meanwhile 1\r\n1\r\n", b"MSG meanwhile 1 1\r\n1\r\n")
                peer.caught_up()
                assert found.interest_of_routes() == STORM_COUNT
                peaks.append(found.memory("VmHWM"))
                assert peaks[0] - before < STORM_COUNT * STORM_BYTES_PER_ENTRY_MAX
                one.sendall(b"PUB storm.7.x 1\r\n7\r\nPUB storm.499999.x 1\r\n9\r\n")
                peer.hear_until(b"RMSG $G storm.499999.x 1\r\n9\r\n")
                if ends == "RS-":
                    peer.caught_up(going)
                    assert found.interest_of_routes() == 0
            # Entries of a route that has ended are taken out a few at a time.
            eventually(lambda: found.server.monitored("subsz")["num_subscriptions"] < 100)
            said(one, b"PUB storm.7.x 1\r\n7\r\nPING\r\n", b"PONG\r\n")
        assert peaks[1] - peaks[0] < 50 * MIB
        assert found.new_lines() < LINES_MAX


@pytest.mark.parametrize("late", [False, True], ids=["bit by bit", "all at once"])
@pytest.mark.parametrize("kinds", [(POLYMQ, NEW), (NEW, POLYMQ)], ids=["from polymq", "from a real one"])
def test_a_storm_from_a_client_crosses(kinds: tuple[str, str], late: bool, tmp_path: Path) -> None:
    """What a client of one server wants by the hundred thousand, the other learns, and forgets when the client goes; also if it joins late."""
    count = 100_000
    near, far = (NatsServer(kind, f"m-{number}", tmp_path, NatsOptions()) for number, kind in enumerate(kinds))
    near.clustered = far.clustered = True
    far.routes = [near]
    with ending([near, far]):
        near.start()
        with client(near) as wanting:
            if not late:
                far.start()
                await_mesh([near, far])
            said(wanting, b"".join(b"SUB storm.%d %d\r\n" % (number, number) for number in range(count)) + PING, b"PONG\r\n")
            if late:
                far.start()
                await_mesh([near, far])
            eventually(lambda: Watched(far).interest_of_routes() >= count)
            with client(far) as source:
                source.sendall(b"PUB storm.77777 1\r\n7\r\n")
                said(wanting, b"", b"MSG storm.77777 77777 1\r\n7\r\n")
        eventually(lambda: Watched(far).interest_of_routes() < 1_000)


def eventually(check: object) -> None:
    assert callable(check)
    deadline = time.monotonic() + 3 * TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_flood_of_duplicates(tmp_path: Path) -> None:
    """The same server comes again and again while its route is well: the route stays, and the log stays short."""
    with watched(tmp_path) as found, contextlib.closing(Talk(found.server.route_port)) as first:
        first.caught_up(HELLO + b"RS+ $G kept\r\n")
        before = found.memory()
        for _ in range(FLOOD_COUNT):
            with contextlib.closing(Talk(found.server.route_port)) as again:
                again.say(HELLO)
                assert b"-ERR" not in again.hear_end()
            if PING in first.heard or not _ % 100:
                first.hear(0)
                first.say(b"PONG\r\n")
        with client(found.server) as one:
            one.sendall(b"PUB kept 1\r\n1\r\n")
            first.hear_until(b"RMSG $G kept 1\r\n1\r\n")
        assert found.memory() - before < 50 * MIB
        assert 0 < found.new_lines() < LINES_MAX


@pytest.mark.parametrize("lie", ["our id", "our name", "the id of another"])
def test_a_peer_that_lies_about_who_it_is(tmp_path: Path, lie: str) -> None:
    """Nobody is taken for us, and nobody takes the place of a server that is there."""
    with watched(tmp_path) as found, contextlib.closing(Talk(found.server.route_port)) as other:
        own = other.greeting()
        other.caught_up(hello("OTHER") + b"RS+ $G secret\r\n")
        told = {
            "our id": {"server_id": own["server_id"]},
            "our name": {"server_name": own["server_name"]},
            "the id of another": {"server_id": "NOTHER", "server_name": "liar"},
        }[lie]
        for _ in range(FLOOD_COUNT):
            with contextlib.closing(Talk(found.server.route_port)) as liar:
                liar.say(connect(name="NLIAR") + info(**told) + b"RS+ $G secret\r\nRMSG $G secret 4\r\nlies\r\n")
                liar.hear_end()
                assert b"MSG" not in liar.heard
        assert found.server.routed_to() == {"NOTHER"}
        other.say(b"PONG\r\n")
        with client(found.server) as one:
            one.sendall(b"PUB secret 1\r\n1\r\n")
            assert b"lies" not in other.hear_until(b"RMSG $G secret 1\r\n1\r\n")
        assert 0 < found.new_lines() < LINES_MAX


@pytest.mark.parametrize(
    "begun",
    [
        b"CONNECT {",
        b"INFO {",
        b"RS+ $G ",
        b"",
        HELLO + b"INFO {",
        HELLO + b"RS+ $G ",
        HELLO + b"RMSG $G ",
        HELLO + b"XYZ",
        HELLO + b"-ERR '",
    ],
    ids=lambda begun: begun.rpartition(b"\n")[2].decode().strip() + (" of a route" if b"\n" in begun else "") or "nothing",
)
def test_a_line_that_never_ends(endless: Watched, begun: bytes) -> None:
    """It is not kept, and the connection ends: when the server has said why, or had a second to."""
    before, lines = endless.memory("VmHWM"), endless.new_lines()
    with contextlib.closing(Talk(endless.server.route_port)) as peer:
        peer.say(begun)
        piece = b"a" * MIB
        with contextlib.suppress(ConnectionError):
            while True:
                peer.connection.sendall(piece)
    await_no_routes(endless.server)
    assert endless.memory("VmHWM") - before < 16 * MIB
    assert lines < endless.new_lines() < lines + 10


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("endless")) as found:
        yield found


@pytest.mark.parametrize("line", [b"RMSG $G big %d\r\n", b"RMSG NONE big %d\r\n", b"HMSG $G big 12 %d\r\n"])
def test_a_message_of_a_gigabyte(endless: Watched, line: bytes) -> None:
    """It passes by unread, is said to be left out, and the route goes on."""
    before, lines = endless.memory(), endless.new_lines()
    with contextlib.closing(Talk(endless.server.route_port)) as peer, client(endless.server) as one:
        said(one, b"SUB * 1\r\nPING\r\n", b"PONG\r\n")
        peer.caught_up(HELLO)
        peer.say(line % ENDLESS_SIZE_BYTES)
        piece = b"a" * MIB
        for _ in range(ENDLESS_SIZE_BYTES // MIB):
            peer.say(piece)
        peer.say(b"a" * (ENDLESS_SIZE_BYTES % MIB))
        peer.caught_up(b"\r\nRMSG $G small 1\r\n1\r\n")
        said(one, b"", b"MSG small 1 1\r\n1\r\n")
    await_no_routes(endless.server)
    assert endless.memory("VmHWM") - before < 64 * MIB
    assert lines < endless.new_lines() < lines + 10


class Mute:
    """Listeners that take calls and say nothing. `calls` counts them, by port."""

    def __init__(self, count: int) -> None:
        self._listening = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(count)]
        self.ports = [each.getsockname()[1] for each in self._listening]
        self.calls = dict.fromkeys(self.ports, 0)
        self._taken: list[socket.socket] = []
        for each in self._listening:
            each.setblocking(False)

    def take(self) -> None:
        """Take the calls that there are."""
        for port, each in zip(self.ports, self._listening, strict=True):
            with contextlib.suppress(BlockingIOError):
                while True:
                    taken, _ = each.accept()
                    taken.setblocking(False)
                    self._taken.append(taken)
                    self.calls[port] += 1

    def answered(self, ports: list[int]) -> bool:
        """Say whether each of these has been called by now."""
        self.take()
        return all(self.calls[port] for port in ports)

    def open_count(self) -> int:
        """Count the calls that have not been ended by who made them."""
        found = 0
        for each in self._taken:
            try:
                while each.recv(65_536):
                    pass
            except BlockingIOError:
                found += 1
            except ConnectionError:
                pass
        return found

    def close(self) -> None:
        """End it."""
        for each in (*self._listening, *self._taken):
            each.close()


def gossip(number: int, port: int) -> bytes:
    """Word of a server."""
    return info(server_id=f"N{number}", server_name=f"n{number}", ip=f"nats-route://127.0.0.1:{port}/")


def test_a_flood_of_hearsay(tmp_path: Path) -> None:
    """Told of a thousand servers that are not there, and of addresses that are none: a bounded number is dialled at a time."""
    with watched(tmp_path) as found, contextlib.closing(Talk(found.server.route_port)) as peer:
        before = found.memory()
        nobody = [gossip(number, number + 1) for number in range(FLOOD_COUNT)]
        nowhere = [info(server_id=f"X{number}", ip=f"rubbish {number}") for number in range(FLOOD_COUNT)]
        peer.caught_up(HELLO + b"".join(nobody) + b"".join(nowhere))
        assert found.server.routed_to() == {"NPEER"}
        assert found.memory() - before < 50 * MIB
        assert 0 < found.new_lines() < LINES_MAX


def test_a_flood_of_hearsay_of_those_who_are_silent(tmp_path: Path) -> None:
    """Each that takes the call is dialled once, whatever is said to be there; of those who say nothing the last few are kept."""
    with (
        watched(tmp_path) as found,
        contextlib.closing(Talk(found.server.route_port)) as peer,
        contextlib.closing(Mute(2 * ROUTE_HEARSAY_MAX)) as mute,
    ):
        before = found.descriptor_count()
        peer.caught_up(HELLO)
        # One address, and a server of another name there each time.
        one = mute.ports[0]
        for number in range(0, FLOOD_COUNT, 10):
            peer.caught_up(b"".join(gossip(number + each, one) for each in range(10)))
            mute.take()
        eventually(lambda: mute.answered([one]))
        # Many addresses, some at a time so that each is dialled; each is told of several times.
        for first in range(1, len(mute.ports), ROUTE_HEARSAY_MAX // 2):
            some = mute.ports[first : first + ROUTE_HEARSAY_MAX // 2]
            peer.caught_up(3 * b"".join(gossip(port, port) for port in some))
            eventually(partial(mute.answered, some))
        eventually(lambda: mute.open_count() == ROUTE_HEARSAY_MAX)
        assert set(mute.calls.values()) == {1}
        assert found.descriptor_count() - before < ROUTE_HEARSAY_MAX + 20
        assert found.server.routed_to() == {"NPEER"}
        assert 0 < found.new_lines() < LINES_MAX


async def discovered(server: NatsServer) -> int:
    """How many other servers nats-py learns of when it connects."""
    async with connected(server) as one:
        return len(one.client.discovered_servers)


def test_addresses_for_clients_that_clients_cannot_read(tmp_path: Path) -> None:
    """A peer tells of more than nats-py takes in INFO, and of what is no address: it connects all the same."""
    with watched(tmp_path) as found, contextlib.closing(Talk(found.server.route_port)) as peer:
        too_long = ["h" * 900 + f"{number}:4222" for number in range(60)]
        peer.caught_up(connect() + info(connect_urls=too_long))
        assert asyncio.run(discovered(found.server)) == 0
        too_many = [f"{number:0250}:4222" for number in range(100)]
        peer.caught_up(info(connect_urls=["[::1", *too_many]))
        assert asyncio.run(discovered(found.server)) == 63  # the first 64, of which one is no address
        assert found.server.routed_to() == {"NPEER"}
        assert 0 < found.new_lines() < LINES_MAX


def test_half_open_connections(tmp_path: Path) -> None:
    """Those that never say a word are few, make way for those that do, and are given up."""
    with watched(tmp_path, route_more='ping_interval: "500ms", ping_max: 1') as found, contextlib.ExitStack() as stack:
        before = found.memory()
        silent = [stack.enter_context(contextlib.closing(Talk(found.server.route_port))) for _ in range(FLOOD_COUNT)]
        # All at once: there is no room that has come free.
        found.serves()
        assert found.memory() - before < 100 * MIB
        for each in silent:
            each.hear_end()
        assert found.new_lines() < LINES_MAX


def test_a_route_that_never_answers(tmp_path: Path) -> None:
    """It is given up, with all that it wanted; until then it gets what it wants."""
    with watched(tmp_path, route_more='ping_interval: "500ms", ping_max: 1') as found:
        with contextlib.closing(Talk(found.server.route_port)) as peer, client(found.server) as one:
            peer.caught_up(HELLO + b"RS+ $G a\r\n")
            one.sendall(b"PUB a 1\r\n1\r\n")
            assert b"RMSG $G a 1\r\n1\r\n" in peer.hear_end()
            assert b"-ERR 'Stale Connection'\r\n" in peer.heard
        await_no_routes(found.server)
        assert 0 < found.new_lines() < LINES_MAX


def test_a_server_that_comes_back_while_its_old_route_is_half_open(tmp_path: Path) -> None:
    """A new connection takes the place of one that is dead, within seconds."""
    with watched(tmp_path) as found, contextlib.closing(Talk(found.server.route_port)) as dead:
        dead.caught_up(HELLO + b"RS+ $G a\r\n")
        for attempt in itertools.count():
            assert attempt < 100
            with contextlib.closing(Talk(found.server.route_port)) as again:
                heard = again.hold(HELLO + b"RS+ $G a\r\n")
                if not heard[1]:
                    with client(found.server) as one:
                        one.sendall(b"PUB a 1\r\n1\r\n")
                        again.hear_until(b"RMSG $G a 1\r\n1\r\n")
                    break
            time.sleep(0.1)
        assert 0 < found.new_lines() < LINES_MAX


class Waits:
    """A client that has nothing to do with anything, and how long it waits for its PONGs meanwhile."""

    def __init__(self, server: NatsServer) -> None:
        self.seconds: list[float] = []
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with client(self._server) as one:
            while not self._over.wait(0.002):
                begun = time.monotonic()
                said(one, PING, b"PONG\r\n")
                self.seconds.append(time.monotonic() - begun)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(TIMEOUT_S)

    def told(self) -> str:
        """What it has seen."""
        long = sum(each > 0.05 for each in self.seconds)
        return (
            f"{len(self.seconds):>6} PINGs of a bystander: {long:>4} took more than 50 ms, the longest {1000 * max(self.seconds):7.1f} ms"
        )


def heard_exactly(connection: socket.socket, wanted: bytes) -> None:
    """Hear this, and nothing else but PING; that it ends before is a failure and no wait."""
    heard = bytearray()
    while len(heard) < len(wanted):
        more = connection.recv(min(len(wanted) - len(heard), MIB))
        assert more, f"ended {len(wanted) - len(heard)} bytes too early"
        heard += more
        if PING in heard:
            heard = heard.replace(PING, b"")
            connection.sendall(b"PONG\r\n")
    assert heard == wanted


@pytest.mark.parametrize(
    ("write_deadline", "count", "reason"),
    [("500ms", 400, CloseReason.SLOW_CONSUMER_DEADLINE), ("60s", 4_000, CloseReason.SLOW_CONSUMER_PENDING)],
    ids=["for too long", "too much"],
)
def test_a_route_that_does_not_read(
    tmp_path: Path, write_deadline: str, count: int, reason: CloseReason, record_property: Callable[[str, Any], None]
) -> None:
    """What waits for it is bounded; it is closed, which the log says why; the others get everything, in order."""
    body = b"x" * 100_000
    with watched(tmp_path, more=f'write_deadline: "{write_deadline}"') as found, contextlib.closing(Talk(found.server.route_port)) as dead:
        before = found.memory()
        dead.caught_up(HELLO + b"RS+ $G a.*\r\n")
        with client(found.server) as source, client(found.server) as target, Waits(found.server) as waits:
            said(target, b"SUB a.* 1\r\nPING\r\n", b"PONG\r\n")
            for first in range(0, count, 10):
                some = range(first, first + 10)
                source.sendall(b"".join(b"PUB a.%d %d\r\n%b\r\n" % (number, len(body), body) for number in some))
                heard_exactly(target, b"".join(b"MSG a.%d 1 %d\r\n%b\r\n" % (number, len(body), body) for number in some))
            await_no_routes(found.server)
        record_property("wait", f"{waits.told()}   {reason.value}")
        assert f"(NPEER) has ended: {reason.value}" in found.server.log_text()
        # What waits lies in buffers that it does not fill wholly.
        assert found.memory("VmHWM") - before < 1.5 * min(count * len(body), ROUTE_PENDING_SIZE_BYTES_MAX) + 64 * MIB
        assert 0 < found.new_lines() < LINES_MAX
