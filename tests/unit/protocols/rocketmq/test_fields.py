"""The scanner finds what is there and leaves what is unusual; that it reads the same as `header` is in test_decode_properties."""

from __future__ import annotations

import pytest

from polymq.protocols.rocketmq import fields
from polymq.protocols.rocketmq.fields import FIELDS_MAX, Fields
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.fields")


def read(text: bytes) -> Fields | None:
    found = Fields()
    known = found.scan_json(b"--" + text + b"--", 2, 2 + len(text))
    again = plain.Fields()
    assert bool(again.scan_json(text, 0, len(text))) == bool(known)
    return found if known else None


def test_what_real_peers_write() -> None:
    text = (
        b'{"code":310,"extFields":{"a":"x","n":-5,"t":true,"f":false,"e":"\\u0001\\n"},"flag":2,"language":"GO","opaque":-7,"version":317}'
    )
    found = Fields()
    assert found.scan_json(text, 0, len(text))
    assert found.ext(text) == {"a": "x", "n": "-5", "t": "true", "f": "false", "e": "\x01\n"}
    assert (found.code, found.flag, found.language, found.opaque, found.version, found.remark(text)) == (310, 2, 9, -7, 317, None)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b'{"code":null}',
        b'{"code":1.0}',
        b'{"code":1e5}',
        b'{"code":01}',
        b'{"code":-}',
        b'{"code":"1"}',
        b'{"code":2147483648}',
        b'{"code":99999999999999999999}',
        b'{"code":1}x',
        b'{"code":1,}',
        b'{"code" 1}',
        b'{"a":{}}',
        b'{"extFields":{"a":null}}',
        b'{"extFields":{"a":[]}}',
        b'{"extFields":{"a":"x"',
        b'{"extFields":{"a":"x",}}',
        b'{"extFields":{"\\u0061":"x"}}',
        b'{"extFields":{},"extFields":{}}',
        b'{"remark":"\\x"}',
        b'{"remark":"\\u12"}',
        b'{"remark":"\\u12x4"}',
        b'{"remark":"\\ud800"}',
        b'{"remark":"\\ud800\\u0041"}',
        b'{"remark":"\\udc00"}',
        b'{"remark":tru}',
        b'{"remark":nul',
    ],
)
def test_what_is_left_to_others(text: bytes) -> None:
    assert read(text) is None


def test_as_many_fields_as_there_is_room_for() -> None:
    listed = [b'"%d":"x"' % number for number in range(FIELDS_MAX + 1)]
    found = read(b'{"extFields":{' + b",".join(listed[:FIELDS_MAX]) + b"}}")
    assert found is not None
    assert found.count == FIELDS_MAX
    assert read(b'{"extFields":{' + b",".join(listed) + b"}}") is None


def test_escapes_become_characters() -> None:
    escaped = b'\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00z'
    for module in (fields, plain):
        room = bytearray(len(escaped))
        end = module.unescape(room, 0, escaped, 0, len(escaped))
        assert room[:end].decode() == '"\\/\b\f\n\r\tAé€\U0001f600z'


def test_utf8_is_looked_for() -> None:
    for module in (fields, plain):
        assert module.is_utf8(b"\xffabc\xff", 1, 4)
        assert module.is_utf8("é€".encode(), 0, 5)
        assert not module.is_utf8("é€".encode(), 0, 4)
