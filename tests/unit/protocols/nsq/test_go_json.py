from __future__ import annotations

import pytest

from polymq.protocols.nsq.go_json import GoNumber, parse, printable, struct

FIELDS = {"number": int, "text": str, "flag": bool}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"null", {}),
        (b"{}", {}),
        (b'{"number":5,"text":"a","flag":true,"more":1e400}', {"number": 5, "text": "a", "flag": True}),
        (b'{"NUMBER":5}', {"number": 5}),
        (b'{"number":5,"number":6}', {"number": 6}),
        (b'{"number":5,"number":null}', {"number": 5}),
        (b'{"text":"\xff"}', {"text": "\ufffd"}),
    ],
)
def test_what_go_reads(body: bytes, found: dict[str, object]) -> None:
    assert struct(parse(body), FIELDS) == found


@pytest.mark.parametrize(
    "body", [b"[]", b'{"number":"5"}', b'{"number":true}', b'{"flag":1}', b'{"number":5.0}', b'{"number":9223372036854775808}']
)
def test_what_go_refuses(body: bytes) -> None:
    assert struct(parse(body), FIELDS) is None


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b"{}x", b"\xef\xbb\xbf{}", b"[" * 100_000])
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse(body)


def test_numbers_that_are_no_integers_of_64_bits() -> None:
    assert all(isinstance(parse(body), GoNumber) for body in (b"1.5", b"1" * 5000, b"-9223372036854775809"))


def test_halves_of_pairs_are_replaced() -> None:
    assert printable("a\ud800b") == "a\ufffdb"
    assert printable(5) == 5
