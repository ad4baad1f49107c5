"""Invariant: no input makes a route raise, keep anything after its end, or harm the server's other routes.

Streams are written by a seeded generator that knows the lines, then damaged; a failure names its seed. What another server says of
itself, and what it wants, is acted upon; so it is the gateway that is fed here, in any pieces, and not the decoder alone.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import pytest

from polymq.gateways.nats import route
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.info import Permissions
from polymq.protocols.nats.settings import NatsSettings
from tests.fuzz.test_nats import command, damage, name, routed
from tests.fuzz.test_nsq import SEEDS
from tests.unit.gateways.nats.route_world import Stranger, Wanted, World, connect_line, info_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.gateways.nats.route_world import Server

STREAMS_PER_SEED = 25
SMALL = NatsSettings(line_size_bytes_max=60, routed_payload_size_bytes_max=200)
NAMES = ("A", "X", "Y", "Z", "")
CLUSTERS = ("c1", "c1", "c1", "c0", "c2", "")


def greeting(random_: random.Random) -> bytes:
    """CONNECT or INFO, with anything in it that is looked at."""
    if random_.random() < 0.4:
        return connect_line(f"N{random_.choice(NAMES)}", random_.choice(CLUSTERS), cluster_dynamic=random_.random() < 0.5)
    odd = {
        "port": random_.choice((0, 6222, -1, 1 << 40)),
        "ip": random_.choice(("", "nats-route://10.0.0.5:6222/", "nats-route://[::1]:1", "rubbish", "nats-route://h:x/")),
        "headers": random_.random() < 0.5,
        "gossip_mode": random_.choice((0, 1, 2, 255)),
        "connect_urls": tuple(random_.choice(("h:1", "", "x" * 99)) for _ in range(random_.randrange(3))),
        "ldm": random_.random() < 0.2,
        "cluster_dynamic": random_.random() < 0.5,
        "compression": random_.choice(("", "", "off", "zip")),
        "route_account": random_.choice(("", "", "", "A1", "$SYS")),
        "route_acc_add_reqid": random_.choice(("", "", "r")),
        "gateway": random_.choice(("", "", "G")),
        "polymq": random_.random() < 0.5,
    }
    return info_line(random_.choice(NAMES), random_.choice(CLUSTERS), **odd)


def interest(random_: random.Random) -> bytes:
    verb = random_.choice((b"RS+ ", b"RS- ", b"LS+ o ", b"LS-  "))
    queue = random_.choice((b"", b" q %d" % random_.choice((0, 1, 7, 999_999_999)), b" q"))
    return verb + random_.choice((b"$G ", b"$G ", b"ONE ", b"NONE ", b"$SYS ")) + name(random_) + queue + b"\r\n"


def jetstream(random_: random.Random) -> bytes:
    """What a server with JetStream says in the servers' own account: that it wants questions or not, and answers."""
    if random_.random() < 0.5:
        return random_.choice((b"RS+ ", b"RS+ ", b"RS- ")) + b"$SYS $JS.API.>\r\n"
    # The world's random bytes are numbers that count up.
    token = b"A" * 11 + random_.choice((b"", b"A", b"B", b"C", b"D", b"E"))
    return b"RMSG $SYS _R_." + b"A" * 12 + b"." + token + random_.choice((b" 2\r\n{}\r\n", b" $JS.API.X 2\r\n{}\r\n", b" 0\r\n\r\n"))


def stream(random_: random.Random) -> bytes:
    makers: tuple[Callable[[random.Random], bytes], ...] = (greeting, interest, interest, routed, command, jetstream)
    lines = [connect_line(), info_line()] if random_.random() < 0.7 else []
    return damage(b"".join(lines) + b"".join(random_.choice(makers)(random_) for _ in range(random_.randrange(30))), random_)


def made(world: World, random_: random.Random) -> Server:
    rules = RouteRules(Permissions(deny=("a.b",)), Permissions(allow=("a", "foo.>"))) if random_.random() < 0.3 else RouteRules()
    dynamic = random_.random() < 0.3
    return world.server(settings=SMALL, accounts=["ONE"], jetstream=["$G", "ONE"], rules=rules, dynamic=dynamic)


def feed(stranger: Stranger, data: bytes, random_: random.Random) -> None:
    """Say it in pieces, as long as somebody listens."""
    while data and stranger.closed is None:
        size = random_.choice((1, 3, 20, 100, len(data)))
        piece, data = data[:size], data[size:]
        stranger.send(piece)


@pytest.mark.parametrize("seed", SEEDS)
def test_routes_survive_any_input(seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL)
    random_ = random.Random(seed)
    if seed % 2:
        # Each turn ends after a few lines.
        monkeypatch.setattr(route, "ROUTE_PIECE_SIZE_BYTES", 50)
        monkeypatch.setattr(route, "ROUTE_NS_PER_TURN_MAX", 0)
    for number in range(STREAMS_PER_SEED):
        world = World()
        server = made(world, random_)
        listener = server.listener()
        for pattern, queue in ((b">", b""), (b"a", b"q"), (b"foo.*", b"q")):
            listener.listen(pattern, queue)
        good = world.joined(server, "GOOD")
        good.send(b"RS+ $G a\r\nRS+ $G a q 3\r\n", b"RS+ $SYS $JS.API.>\r\n" if random_.random() < 0.5 else b"")
        strangers = [world.stranger(server, wanted=Wanted() if random_.random() < 0.3 else None) for _ in range(2)]
        for stranger in strangers:
            for reply in (b"", b"a", b"foo.y"):
                header = random_.choice((b"", b"NATS/1.0\r\n\r\n", b"rubbish", b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n"))
                server.publish(b"$JS.API.INFO", header + b"x", reply=reply, header_size=len(header), account=random_.choice(("", "ONE")))
            feed(stranger, stream(random_), random_)
            server.publish(b"a", b"x")
            server.publish(b"foo.x", b"x", account="ONE")
        for stranger in strangers:
            stranger.end.end()
        world.run()
        # Who has agreed on another name with a stranger has let go of the good one.
        if server.cluster.name == "c1":
            assert list(server.cluster.routes) == ["NGOOD"], (seed, number)
            good.heard()
            assert server.publish(b"a", b"1") == 0
            assert b"RMSG $G a" in good.heard(), (seed, number)
        good.end.end()
        world.run()
        assert (server.cluster.routes, server.cluster.connections) == ({}, {}), (seed, number)
        for namespace in ("", "ONE"):
            interest_left = server.live.space(namespace).interest
            assert interest_left.count == (3 if not namespace else 0), (seed, number)
        assert server.cluster.accounts.system is not None
        # Where answers come is listened to from the first question on.
        assert server.cluster.accounts.system.space.interest.count <= 1, (seed, number)
