from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.nsqlookup.identify import Identity, parse_identity, parse_reply, write_identity
from tests.unit.protocols.nsqlookup.streams import GOOD

NOT_JSON = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
MISSING = b"E_BAD_BODY IDENTIFY missing fields"
WHO = Identity("b", "h", http_port=2, tcp_port=1, version="v")


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        GOOD.upper().replace(b'"B"', b'"b"').replace(b'"H"', b'"h"').replace(b'"V"', b'"v"'),
        GOOD.replace(b"{", b'{"remote_address":"x","unknown":1.5,'),
    ],
)
def test_who_is_there(body: bytes) -> None:
    assert parse_identity(body) == WHO


def test_a_port_is_taken_as_it_comes() -> None:
    found = parse_identity(GOOD.replace(b":1", b":-1"))
    assert isinstance(found, Identity)
    assert found.tcp_port == -1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", NOT_JSON),
        (b"[]", NOT_JSON),
        (b"null", MISSING),
        (b"{}", MISSING),
        (GOOD + b" x", NOT_JSON),
        (GOOD.replace(b":1", b":1.0"), NOT_JSON),
        (GOOD.replace(b":1", b':"1"'), NOT_JSON),
        (GOOD.replace(b":1", b":9223372036854775808"), NOT_JSON),
        (GOOD.replace(b"{", b'{"remote_address":3,'), NOT_JSON),
        (GOOD.replace(b":1", b":0"), MISSING),
        (GOOD.replace(b":2", b":null"), MISSING),
        (GOOD.replace(b'"b"', b'""'), MISSING),
        (GOOD.replace(b'"v"', b'""'), MISSING),
    ],
)
def test_who_does_not_say_enough(body: bytes, text: bytes) -> None:
    assert parse_identity(body) == text


def test_the_host_name_may_be_missing() -> None:
    assert isinstance(parse_identity(GOOD.replace(b'"h"', b'""')), Identity)


def test_the_order_of_the_keys_is_gos() -> None:
    written = write_identity(Identity("1.2.3.4", "vm", http_port=4161, tcp_port=4160))
    assert written == b'{"broadcast_address":"1.2.3.4","hostname":"vm","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'


@pytest.mark.parametrize("data", [b"OK", b"E_INVALID", b"null", b"{}", b"[]", GOOD.replace(b":2", b":65536"), GOOD.replace(b":2", b":-1")])
def test_an_answer_that_makes_no_sense(data: bytes) -> None:
    assert parse_reply(data) is None


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES, NAMES, st.integers(1, 65535), st.integers(1, 65535), NAMES)
def test_what_was_written_is_read_by_both_sides(address: str, host: str, http_port: int, tcp_port: int, version: str) -> None:
    identity = Identity(address, host, http_port, tcp_port, version)
    assert parse_identity(write_identity(identity)) == identity
    assert parse_reply(write_identity(identity)) == identity
