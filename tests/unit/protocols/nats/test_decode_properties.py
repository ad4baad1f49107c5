"""However a stream is cut, and whichever build decodes it, it says the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.protocols.nats import decode
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.protocols.nats.streams import Facts, hpub, pub, run
from tests.unit.protocols.nsq.streams import interpreted

SMALL = NatsSettings(payload_size_bytes_max=40, line_size_bytes_max=60, routed_payload_size_bytes_max=50)
plain = interpreted("polymq.protocols.nats.decode")

names = st.sampled_from([b"a", b"a.b", b"foo.*", b">", b"_INBOX.x", b"_GR_.x", b"$JS.ACK.a", b"..", b"\xff\x00"])
replies = st.one_of(st.just(b""), names)
payloads = st.binary(max_size=40)
blanks = st.sampled_from([b" ", b"  ", b"\t", b" \t "])
ends = st.sampled_from([b"\r\n", b"\n", b" \r\n"])
kinds = st.sampled_from(PeerKind)


def line(words: list[bytes], blank: bytes, end: bytes) -> bytes:
    return blank.join(words) + end


words = st.lists(st.sampled_from([b"a", b"a.b", b"q", b"+", b"|", b"1", b"2", b"0", b"40", b"51", b"x", b"$G", b"999999999"]), max_size=6)
verbs = st.sampled_from(
    [
        b"PUB",
        b"HPUB",
        b"SUB",
        b"UNSUB",
        b"RS+",
        b"RS-",
        b"LS+",
        b"LS-",
        b"RMSG",
        b"HMSG",
        b"LMSG",
        b"PING",
        b"pong",
        b"+OK",
        b"A+",
        b"CONNECT",
        b"INFO",
    ]
)
routed = st.builds(
    lambda verb, lead, form, header, payload: (
        b" ".join([verb, *lead, *form, *([] if verb == b"RMSG" else [b"%d" % min(header, len(payload))]), b"%d" % len(payload)])
        + b"\r\n"
        + payload
        + b"\r\n"
    ),
    st.sampled_from([b"RMSG", b"HMSG"]),
    st.sampled_from([[b"$G", b"a"], [b"ACC", b"b.c"]]),
    st.sampled_from([[], [b"r"], [b"+", b"r"], [b"|", b"q"], [b"+", b"r", b"q", b"p"], [b"|", b"q", b"p"]]),
    st.integers(0, 60),
    st.binary(max_size=60),
)
sound = st.one_of(
    st.builds(pub, names, payloads, replies),
    st.builds(lambda name, payload, count: pub(name, payload) * count, names, payloads, st.integers(1, 6)),
    st.builds(hpub, names, st.binary(max_size=20), st.binary(max_size=20), replies),
    routed,
    st.builds(lambda name, sid: b"SUB %b %b\r\n" % (name, sid), names, st.sampled_from([b"1", b"22", b"x" * 20])),
    st.sampled_from(
        [b"PING\r\n", b"PONG\r\n", b"UNSUB 1\r\n", b"UNSUB 1 5\r\n", b"RS+ $G a\r\n", b"RS- $G a q\r\n", b"CONNECT {}\r\n", b"INFO {}\r\n"]
    ),
)
rotten = st.one_of(
    st.builds(line, st.builds(lambda verb, rest: [verb, *rest], verbs, words), blanks, ends),
    st.binary(max_size=20),
    st.builds(lambda stream, at: stream[:at] + stream[at + 1 :], sound, st.integers(0, 30)),
    st.sampled_from(
        [b"SUB " + b"a" * 58 + b" 1\r\n", b"SUB " + b"a" * 59 + b" 1\r\n", b"PUB a 41\r\n", b"-ERR 'x'\r\n", b"PUB" + b" " * 80]
    ),
)
streams = st.lists(st.one_of(sound, sound, sound, rotten), max_size=12).map(b"".join)
flags = st.builds(Facts, headers=st.booleans(), connect_first=st.sampled_from([False, False, True]), account_omitted=st.booleans())


@settings(max_examples=400)
@given(kinds, flags, streams, st.data())
def test_any_cut_gives_the_same_events(kind: PeerKind, facts: Facts, stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert run(stream, cuts, kind=kind, settings=SMALL, facts=facts) == run(stream, kind=kind, settings=SMALL, facts=facts)


@settings(max_examples=100)
@given(kinds, streams)
def test_byte_by_byte_gives_the_same_events(kind: PeerKind, stream: bytes) -> None:
    assert run(stream, range(len(stream)), kind=kind, settings=SMALL) == run(stream, kind=kind, settings=SMALL)


@settings(max_examples=400)
@given(kinds, flags, streams, st.data())
def test_both_builds_give_the_same_events(kind: PeerKind, facts: Facts, stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    assert run(stream, cuts, kind=kind, settings=SMALL, facts=facts) == run(
        stream, cuts, kind=kind, module=plain, settings=SMALL, facts=facts
    )


def test_the_two_builds_are_two() -> None:
    assert plain.Decoder is not decode.Decoder
    assert str(plain.__file__).endswith(".py")
