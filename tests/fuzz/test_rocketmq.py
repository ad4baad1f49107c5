"""Invariant: no input makes a codec raise but what it says, read outside its view, stop making progress, or differ between the builds.

Streams are written by a seeded generator that knows the frames, then damaged; a failure names its seed. Meant for the build with
bounds checks (`make fuzz`), where reading outside a view raises; every view ends where its bytes end.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
from array import array
from typing import TYPE_CHECKING

import pytest

from polymq.errors import CorruptRecord, RemoteProtocolError
from polymq.protocols.rocketmq import batch_records, bodies, relaxed_json, runs, unfold
from polymq.protocols.rocketmq.batches import BatchPart, join_batch, split_batch
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import SEND_REPLY_SIZE_BYTES_MAX, by_queue, encode_send_replies
from polymq.protocols.rocketmq.events import Event, Request, Sends
from polymq.protocols.rocketmq.extras import Keeper
from polymq.protocols.rocketmq.messages import StoredMessage, body_crc, decode_stored, read_extra
from polymq.protocols.rocketmq.places import Place
from polymq.protocols.rocketmq.runs import FIELDS, encode_one, unpacked_run
from polymq.protocols.rocketmq.send_records import encode_records
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.protocols.rocketmq.stored import encode_stored, stored_room
from polymq.wire import records
from polymq.wire.slices import Slice
from tests.unit.protocols.nsq.streams import interpreted
from tests.unit.protocols.rocketmq.frames import binary_frame, binary_send, json_frame, run, send

if TYPE_CHECKING:
    from types import ModuleType

SEEDS = range(30)
STREAMS_PER_SEED = 40
SMALL = RocketmqSettings(body_size_bytes_max=300, frame_size_bytes_max=4000, header_size_bytes_max=2000)
PLACE = Place(b"T", 1, 5)
KEEPER = Keeper(b"\x0a\0\0\1", 99, "C")
WORDS = ("", "T", "TAGS\x01A\x02", "WAIT\x01true", "DELAY\x011", "é\U0001f600", '"\\\n', "5", "-1", "99999999999", "true", "x" * 300)

plain = interpreted("polymq.protocols.rocketmq.decode")
plain_unfold = interpreted("polymq.protocols.rocketmq.unfold")


def frame(random_: random.Random) -> bytes:
    """One frame, right as a rule."""
    body = random_.randbytes(random_.choice((0, 1, 5, 100, 301)))
    ext = {random_.choice("abefghij") + random_.choice(("", "x")): random_.choice(WORDS) for _ in range(random_.randrange(5))}
    opaque = random_.choice((0, 1, -(2**31), 2**31 - 1))
    match random_.randrange(6):
        case 0 | 1:
            return send(body, opaque=opaque, i=random_.choice(WORDS), e=random_.choice((0, "3", -1, "x")))
        case 2:
            return binary_send(body, opaque=opaque, i=random_.choice(WORDS))
        case 3:
            return json_frame(random_.choice((10, 11, 34, 310)), ext, body, opaque=opaque, remark=random_.choice((None, *WORDS)))
        case 4:
            return binary_frame(random_.choice((10, 11, 34, 310)), ext, body, opaque=opaque)
        case _:
            return json_frame(11, {"a": [1, {}], **ext}, body)


def damage(stream: bytes, random_: random.Random) -> bytes:
    """Change, remove, repeat or insert a few bytes."""
    damaged = bytearray(stream)
    for _ in range(random_.choice((0, 1, 1, 2, 5))):
        at = random_.randrange(len(damaged) + 1)
        size = random_.choice((1, 1, 2, 4, 30))
        match random_.randrange(5):
            case 0:
                damaged[at : at + size] = random_.randbytes(size)
            case 1:
                del damaged[at : at + size]
            case 2:
                damaged[at:at] = damaged[at : at + size]
            case 3:
                damaged[at : at + 4] = struct.pack(">i", random_.choice((0, 1, 4, 21, 300, 0x7FFF_FFFF, -1, -(2**31))))
            case _:
                damaged[at:at] = random_.choice((b'"', b"\\", b"{", b"}", b"\\u", b"\\ud800", b",", b"\xff", b"\0\0\0\x05", b"[" * 50))
    return bytes(damaged)


def known_damage(text: bytes, random_: random.Random) -> list[bytes]:
    return [damage(text, random_) for _ in range(STREAMS_PER_SEED)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_decoder(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = damage(b"".join([frame(random_) for _ in range(random_.randint(1, 8))]), random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randrange(6))]
        said = run(stream, cuts, settings=SMALL)
        assert said == run(stream, settings=SMALL), (seed, stream, cuts)
        assert said == run(stream, cuts, module=plain, settings=SMALL), (seed, stream, cuts)
        assert said == run(stream, settings=SMALL, scanning=False), (seed, stream)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_decoded_can_be_stored_and_answered(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        events: list[Event] = []
        stream = damage(b"".join([frame(random_) for _ in range(8)]), random_)
        Decoder(SMALL).feed(memoryview(stream), events)
        for event in events:
            if isinstance(event, Sends):
                store_and_answer(event)


def store_and_answer(sends: Sends) -> None:
    order, groups = by_queue(sends)
    assert sum(count for *_, count in groups) == sends.count
    for _, _, first, count in groups:
        batch = bytearray(80) + encode_records(sends, order, first, count)
        records.seal(batch, 0, len(batch), records.BatchHeader(origin=2, count=count))
        assert records.check(batch, 0, len(batch)) is None
        slice_ = slice_of(bytes(batch), count)
        room = bytearray(stored_room(slice_, PLACE, 1 << 20))
        end, found, _, _ = encode_stored(room, 0, slice_, PLACE, None, count, 1 << 20)
        assert found == count
        rows = order[first : first + count]
        assert [message.body for message in decode_stored(bytes(room[:end]))] == [sends.body(row) for row in rows]
        answers = bytearray(count * SEND_REPLY_SIZE_BYTES_MAX)
        end = encode_send_replies(answers, 0, sends, order, first, count, place=PLACE, first_offset=0)
        events: list[Event] = []
        Decoder(SMALL, server=False).feed(memoryview(answers)[:end], events)
        assert [event.opaque for event in events if isinstance(event, Request)] == [
            sends.number(row, 0) for row in rows if not sends.number(row, 1) & 1
        ]


def slice_of(data: bytes, count: int) -> Slice:
    return Slice(memoryview(data), partition=0, position=0, end=len(data), offset=0, count=count, batch_left=0, base_time_ns=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_stored_messages_of_a_damaged_log(seed: int) -> None:
    random_ = random.Random(seed)
    message = records.Message(b"body", b"key", ((b"TAGS", b"A"),), ((2, bytes(48)), (0, b"x")), 5)
    batch = bytearray(80) + records.encode_message(message) * 3
    records.seal(batch, 0, len(batch), records.BatchHeader(count=3))
    for data in known_damage(bytes(batch), random_):
        slice_ = slice_of(data, 3)
        with contextlib.suppress(CorruptRecord):
            room = bytearray(stored_room(slice_, PLACE, 1 << 20))
            encode_stored(room, 0, slice_, PLACE, array("i", [65]), 3, 1 << 20)


@pytest.mark.parametrize("seed", SEEDS)
def test_bodies(seed: int) -> None:
    random_ = random.Random(seed)
    beat = {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "T", "codeSet": [1], "tagsSet": ["a"]}]}],
    }
    route = b'{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"b"}],"queueDatas":[{"perm":6}],x:{{"a":1}:2}}'
    parsers = (bodies.parse_heartbeat, bodies.parse_route, bodies.parse_lock_body, bodies.parse_client_config, relaxed_json.loads)
    for text in known_damage(json.dumps(beat).encode(), random_) + known_damage(route, random_):
        for parse in parsers:
            with contextlib.suppress(RemoteProtocolError):
                parse(text)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_and_messages(seed: int) -> None:
    random_ = random.Random(seed)
    batch = join_batch([BatchPart(b"body", b"TAGS\x01A\x02"), BatchPart(b"", b"")])
    for data in known_damage(batch, random_):
        try:
            parts = split_batch(data)
        except RemoteProtocolError:
            parts = []
        try:
            _, count = batch_records.encode_batch_records(data, KEEPER, sys_flag=0, born_ms=0, reconsume_times=0, properties=b"a\x01b")
        except RemoteProtocolError:
            count = 0
        assert count == len(parts), (seed, data)
    for data in known_damage(
        struct.pack(
            ">iIIiiqqiq4siq4siiqi4sB1sh2s", 98, 0xDAA320A7, *range(6), 0, b"host", 1, 2, b"host", 3, 4, 5, 4, b"body", 1, b"T", 2, b"pp"
        ),
        random_,
    ):
        with contextlib.suppress(RemoteProtocolError):
            decode_stored(data)
        read_extra(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_of_stored_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    # What does not unpack is given more and more room.
    monkeypatch.setattr(runs, "_BODY_SIZE_BYTES_MAX", 10_000)
    for _ in range(STREAMS_PER_SEED):
        run_ = damage(b"".join([stored_message(random_, offset) for offset in range(random_.randrange(1, 8))]), random_)
        first, end = random_.choice(((0, 100), (2, 4), (0, 2**63 - 1)))
        said = [unfolded(module, run_, first, end) for module in (unfold, plain_unfold)]
        assert said[0] == said[1], (seed, run_)
        with contextlib.suppress(RemoteProtocolError):
            plain_run = unpacked_run(run_)
            assert not unfold.is_packed(plain_run), (seed, run_)
            unfolded(unfold, plain_run, first, end)


def stored_message(random_: random.Random, offset: int) -> bytes:
    body = random_.randbytes(random_.choice((0, 1, 5, 300)))
    sys_flag = random_.choice((0, 0, 0, 1, 0x101, 0x201, 0x301, 0x10, 0x20, 0x30, 0xC0))
    hosts = [bytes(16 if sys_flag & bit else 4) for bit in (0x10, 0x20)]
    topic, named = random_.choice(("T", "t" * 200)), "".join(random_.choices(WORDS, k=3)).encode()
    crc = body_crc(body) if random_.random() < 0.9 else 7
    message = StoredMessage(topic, 1, offset, 9, body, named, 0, sys_flag, crc, 5, hosts[0], 6, 7, hosts[1], 8)
    return encode_one(message)


def unfolded(module: ModuleType, run_: bytes, first: int, end: int) -> object:
    """What a run is said to be; the sizes of all buffers fit."""
    try:
        found = module.unfold(run_, first, end)
    except RemoteProtocolError as error:
        return str(error)
    assert len(found.offsets) == len(found.times_us) == len(found.reconsume_times) == found.count
    assert found.body_ends[found.count] == len(found.bodies)
    assert found.header_ends[found.count] == found.header_count
    assert found.name_ends[found.header_count] == len(found.names)
    assert found.value_ends[found.header_count] == len(found.values)
    sizes = [found.text_ends[(field + 1) * (found.count + 1) - 1] for field in range(FIELDS)]
    assert sum(sizes) == len(found.texts)
    assert list(found.text_starts) == [sum(sizes[:field]) for field in range(FIELDS)]
    return found, module.is_packed(run_)
