"""Invariant: whatever a NATS client sends, and however it is cut, by itself or by us to spare others, it and others get the same bytes.

Nothing is left behind when it is gone, and nothing that it says is an internal error, not even when it does not keep up itself.

Streams are written by a seeded generator that knows the commands, then damaged; a failure names its seed.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from polymq.protocols.nats.settings import NatsSettings
from tests.fuzz.test_nsq import SEEDS
from tests.unit.gateways.nats.harness import QUIET, World, hurry

STREAMS_PER_SEED = 25
SETTINGS = NatsSettings(payload_size_bytes_max=200, line_size_bytes_max=120, subscriptions_max=6, subscription_tokens_max=4)
NAMES = (b"a", b"a.b", b"a.*", b"a.>", b">", b"b", b"a..b", b"_GR_.x", b"_R_.x", b"$NRG.x", b"in.1")
CONNECTS = (
    b"{}",
    b'{"verbose":false}',
    b'{"verbose":false,"headers":true,"no_responders":true}',
    b'{"echo":false,"protocol":1}',
    b'{"verbose":true,"pedantic":false,"headers":true,"no_responders":true}',
    b'{"verbose":true,"pedantic":true,"echo":false,"headers":true,"no_responders":true}',
    b'{"protocol":7}',
    b"[",
)


def command(chance: random.Random) -> bytes:
    name, sid, body = chance.choice(NAMES), chance.choice((b"1", b"2", b"3", b"sid")), chance.randbytes(chance.choice((0, 1, 30, 200)))
    reply = chance.choice((b"", b"", b"in.1 ", b"_R_.x "))
    headers = b"NATS/1.0\r\n\r\n"
    return chance.choice(
        (
            b"PUB %b %b%d\r\n%b\r\n" % (name, reply, len(body), body) * chance.randint(1, 4),
            b"PUB %b %b%d\r\n%b\r\n" % (name, reply, len(body), body),
            b"HPUB %b %b12 %d\r\n%b%b\r\n" % (name, reply, 12 + len(body), headers, body),
            b"SUB %b %b\r\n" % (name, sid),
            b"SUB %b q%b %b\r\n" % (name, sid, sid),  # a group of one: who of several is chosen is left to chance
            b"UNSUB %b\r\n" % sid,
            b"UNSUB %b %d\r\n" % (sid, chance.randint(0, 4)),
            b"PING\r\n",
            b"PONG\r\n",
            b"CONNECT " + chance.choice(CONNECTS) + b"\r\n",
        )
    )


def stream(chance: random.Random) -> bytes:
    data = bytearray(QUIET if chance.random() < 0.6 else b"")
    for _ in range(chance.randint(1, 15)):
        data += command(chance)
    if chance.random() < 0.3 and data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def outcome(pieces: list[bytes], settings: NatsSettings = SETTINGS) -> tuple[bytes, bytes, bool]:
    """What the client and another one have got in the end, and whether the client was closed; everything is given back."""
    world = World(settings)
    other, talk = world.connect(QUIET + b"SUB > 9\r\nSUB a q 8\r\n"), world.connect()
    talk.send(*pieces)
    heard = talk.hear(), other.hear(), talk.closed
    talk.hang_up()
    other.hang_up()
    world.turn()
    assert not world.house.clients
    assert all(space.interest.count == 0 for space in world.broker.live.spaces.values())
    return heard


def pieces_of(data: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(1, 6)))
    return [piece for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True) if (piece := data[first:last])]


@pytest.mark.parametrize("seed", SEEDS)
def test_cuts_change_nothing(seed: int) -> None:
    chance = random.Random(f"nats client {seed}")
    for _ in range(STREAMS_PER_SEED):
        data = stream(chance)
        whole = outcome([data])
        for _ in range(3):
            pieces = pieces_of(data, chance)
            assert outcome(pieces) == whole, (data, pieces)


@pytest.mark.parametrize("seed", SEEDS)
def test_turns_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(f"nats turns {seed}")
    for _ in range(STREAMS_PER_SEED):
        data = b"".join(stream(chance) for _ in range(2))
        whole = outcome([data])
        with monkeypatch.context() as patch:
            hurry(patch)
            assert outcome([data]) == whole, data
            assert outcome(pieces_of(data, chance)) == whole, data


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_cut_off_leaves_no_trace(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(f"nats cut off {seed}")
    for _ in range(STREAMS_PER_SEED):
        data = QUIET + b"SUB > 1\r\nSUB a 2\r\n" + stream(chance) + stream(chance)
        outcome([data], replace(SETTINGS, pending_size_bytes_max=chance.choice((200, 400, 800))))
        assert not [record for record in caplog.records if record.levelname == "ERROR"], data


@pytest.mark.parametrize("seed", SEEDS)
def test_many_listeners_have_the_same_however_long_it_takes(seed: int) -> None:
    chance = random.Random(f"nats many {seed}")
    for _ in range(STREAMS_PER_SEED // 5):
        connects = [b"CONNECT " + chance.choice(CONNECTS[:-2]) + b"\r\n" for _ in range(12)]
        wanted = [(chance.choice(NAMES[:6]), chance.randint(0, 9)) for _ in connects]
        said = b"".join(command(chance) for _ in range(20)) + b"PUB a 1\r\nx\r\nPING\r\n" * 20
        heard = []
        for hurried in (False, True):
            world = World(SETTINGS)
            talks = [world.connect() for _ in connects]
            for talk, connect, (name, maximum) in zip(talks, connects, wanted, strict=True):
                talk.send(connect + b"SUB %b 1\r\nUNSUB 1 %d\r\n" % (name, maximum))
            with pytest.MonkeyPatch.context() as patch:
                if hurried:
                    hurry(patch)
                talks[0].send(said)
            heard.append([(talk.hear(), talk.closed) for talk in talks])
        assert heard[0] == heard[1], (connects, wanted, said)
