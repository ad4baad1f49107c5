"""However a stream is cut, whichever build decodes it, and whether the scanner or `header` reads its headers, it says the same."""

from __future__ import annotations

import json
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.protocols.rocketmq import decode, fields
from polymq.protocols.rocketmq.fields import Fields
from polymq.protocols.rocketmq.header import decode_binary, decode_json
from tests.unit.protocols.nsq.streams import interpreted
from tests.unit.protocols.rocketmq.frames import binary_send, json_frame, raw_frame, run, send, send_ext

plain = interpreted("polymq.protocols.rocketmq.decode")
plain_fields = interpreted("polymq.protocols.rocketmq.fields")

texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "true", "5", "-0", "TAGS\x01A\x02", "WAIT\x01true", "DELAY\x011", "é", "\U0001f600", "\ud800", "\x00", '"\\/\x7f']
    ),
)
scalars = st.one_of(texts, st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.floats(allow_nan=True), st.just([1, {"a": "b"}]))
names = st.one_of(st.sampled_from(list("abcdefghijklmn")), texts)
headers = st.fixed_dictionaries(
    {},
    optional={
        "code": st.one_of(st.sampled_from([10, 11, 34, 310, 320]), scalars),
        "opaque": st.one_of(st.integers(-(2**31), 2**31 - 1), scalars),
        "flag": st.one_of(st.integers(0, 3), scalars),
        "version": st.one_of(st.integers(0, 500), scalars),
        "language": st.one_of(st.sampled_from(["JAVA", "GO", "KLINGON"]), scalars),
        "remark": scalars,
        "extFields": st.one_of(
            st.dictionaries(names, scalars, max_size=6),
            st.dictionaries(names, scalars, max_size=3).map(lambda more: {**send_ext(), **more}),
        ),
        "serializeTypeCurrentRPC": scalars,
    },
)
raw_headers = st.builds(
    lambda found, ascii_only, indent, more: (
        json.dumps(found, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass") + more
    ),
    headers,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([b"", b"\n", b" ", b"x", b"}"]),
)
frames = st.one_of(
    st.builds(lambda raw, body: raw_frame(raw, body), raw_headers, st.binary(max_size=10)),
    st.builds(
        lambda topic, queue, text: send(b=topic, e=queue, i=text),
        st.sampled_from(["T", "U", "bad!", "%RETRY%G"]),
        st.integers(-1, 9),
        texts,
    ),
    st.builds(lambda text, body: binary_send(body, i=text), texts, st.binary(max_size=20)),
    st.builds(lambda ext, code: json_frame(code, ext), st.dictionaries(names, texts, max_size=5), st.sampled_from([11, 15, 34])),
    st.builds(lambda raw: raw_frame(raw, b"", 1), st.binary(max_size=60)),
)
streams = st.lists(frames, max_size=5).map(b"".join)


@given(streams, st.lists(st.integers(0, 3000), max_size=4))
@settings(deadline=None, max_examples=200)
def test_any_cut_and_any_build_say_the_same(stream: bytes, cuts: list[int]) -> None:
    inside = [cut for cut in cuts if cut <= len(stream)]
    said = run(stream)
    assert run(stream, inside) == said
    assert run(stream, inside, module=plain) == said
    assert run(stream, scanning=False) == said


@given(raw_headers)
@settings(deadline=None, max_examples=200)
def test_the_scanner_reads_json_as_the_slow_reader_does(raw: bytes) -> None:
    for module in (fields, plain_fields):
        scanned = module.Fields()
        if scanned.scan_json(raw, 0, len(raw)) and fields.is_utf8(raw, 0, len(raw)):
            compare(scanned, raw, binary=False)


@given(st.binary(max_size=80))
@settings(deadline=None, max_examples=200)
def test_the_scanner_reads_binary_headers_as_the_slow_reader_does(raw: bytes) -> None:
    for module in (fields, plain_fields):
        scanned = module.Fields()
        if scanned.scan_binary(raw, 0, len(raw)) and scanned.is_utf8(raw):
            compare(scanned, raw, binary=True)


def compare(scanned: Fields, raw: bytes, *, binary: bool) -> None:
    read = decode_binary(raw) if binary else decode_json(raw)
    assert scanned.ext(raw) == read.ext
    assert (scanned.code, scanned.opaque, scanned.flag, scanned.version) == (read.code, read.opaque, read.flag, read.version)
    assert (scanned.language, scanned.remark(raw)) == (read.language, read.remark)


@given(st.dictionaries(st.text(min_size=1, max_size=4).filter(lambda text: text.isascii()), st.text(max_size=9), max_size=6))
def test_the_scanner_reads_all_that_peers_write(ext: dict[str, str]) -> None:
    clean = {name: value.encode("utf-8", "replace").decode() for name, value in ext.items()}
    raw = json.dumps({"code": 11, "extFields": {name: value for name, value in clean.items() if name.isalnum()}, "opaque": 7}).encode()
    scanned = Fields()
    assert scanned.scan_json(raw, 0, len(raw))
    assert scanned.ext(raw) == {name: value for name, value in clean.items() if name.isalnum()}


def test_a_view_is_not_read_behind_its_end() -> None:
    frame = send()
    for size in range(len(frame)):
        assert run(frame[:size]) == []
    for size in range(60):
        raw = frame[8 : 8 + size]
        assert [each[0] for each in run(raw_frame(raw))] == ["VIOLATION"]
        assert not Fields().scan_json(frame[8:], 0, size)
    for size in range(21, 60):
        assert Fields().scan_binary(bytes(17) + struct.pack(">i", size), 0, 21) is False
    assert decode.Decoder is not plain.Decoder
