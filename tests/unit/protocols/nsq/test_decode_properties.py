"""However a stream is cut, and whichever build decodes it, it says the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.protocols.nsq import decode
from polymq.protocols.nsq.settings import NsqSettings
from tests.unit.protocols.nsq import streams
from tests.unit.protocols.nsq.streams import dpub, i32, identify, mpub, pub, run

SMALL = NsqSettings(message_size_bytes_max=40, body_size_bytes_max=200)
plain = streams.interpreted("polymq.protocols.nsq.decode")

topics = st.sampled_from([b"t", b"tt", b"a.b-c_D9", b"e#ephemeral"])
bodies = st.binary(min_size=1, max_size=40)
ids = st.integers(0, (1 << 63) - 1).map(lambda number: b"%016x" % number)
sound = st.one_of(
    st.builds(pub, topics, bodies),
    st.builds(lambda topic, body, count: pub(topic, body) * count, topics, bodies, st.integers(1, 6)),
    st.builds(mpub, topics, st.lists(bodies, min_size=1, max_size=5), st.none() | st.integers(1, 200)),
    st.builds(dpub, topics, st.integers(0, 3_600_000), bodies),
    st.builds(lambda message_id, count: b"FIN %b\n" % message_id * count, ids, st.integers(1, 5)),
    st.builds(b"REQ %b %d\n".__mod__, st.tuples(ids, st.integers(0, 10**7))),
    st.builds(lambda message_id: b"TOUCH %b\n" % message_id, ids),
    st.builds(lambda count: b"RDY %d\n" % count, st.integers(0, 2500)),
    st.sampled_from([b"NOP\n", b"NOP\r\n", b"NOP\nNOP\n", b"CLS\n", b"SUB t c\n"]),
)
rotten = st.one_of(
    st.builds(lambda size: b"PUB t\n" + i32(size), st.integers(-3, 45)),
    st.builds(lambda numbers: b"MPUB t\n" + b"".join(map(i32, numbers)), st.lists(st.integers(-2, 210), max_size=5)),
    st.builds(lambda body: b"IDENTIFY\n" + i32(len(body)) + body, st.binary(max_size=20)),
    st.builds(lambda raw_id: b"FIN " + raw_id + b"\n", st.binary(min_size=14, max_size=18)),
    st.binary(max_size=30),
    st.just(b"x" * 16_380),
)
sound_streams = st.lists(sound, max_size=12).map(b"".join)
any_streams = st.lists(st.one_of(sound, sound, sound, rotten), max_size=12).map(b"".join)
prefixes = st.sampled_from([b"", b"SUB t c\n", identify() + b"SUB t c\n"])


@settings(max_examples=300)
@given(prefixes, any_streams, st.data())
def test_any_cut_gives_the_same_events(prefix: bytes, stream: bytes, data: st.DataObject) -> None:
    whole = prefix + stream
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=8))
    assert run(whole, cuts, settings=SMALL) == run(whole, settings=SMALL)


@settings(max_examples=60)
@given(sound_streams)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert run(b"SUB t c\n" + stream, range(len(stream) + 8), settings=SMALL) == run(b"SUB t c\n" + stream, settings=SMALL)


@settings(max_examples=300)
@given(prefixes, any_streams, st.data())
def test_both_builds_give_the_same_events(prefix: bytes, stream: bytes, data: st.DataObject) -> None:
    whole = prefix + stream
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=5))
    assert run(whole, cuts, settings=SMALL) == run(whole, cuts, module=plain, settings=SMALL)


def test_the_two_builds_are_two() -> None:
    assert plain.Decoder is not decode.Decoder
    assert str(plain.__file__).endswith(".py")
