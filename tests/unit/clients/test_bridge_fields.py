"""The table of docs/BRIDGE.md: what each protocol can carry of a message goes over, and what it cannot is named."""

from __future__ import annotations

import pytest

from polymq.clients.bridge_ends import Carried
from polymq.clients.bridge_fields import fields_of, fitted
from polymq.clients.broker_messages import BrokerMessage, Outgoing
from polymq.clients.rocketmq_messages import RESERVED, OutgoingMessage
from polymq.protocols.nats import frames
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX

NOW_NS = 10**18
FULL = Carried(b"\x00body", b"BA9", [(b"TAGS", b"red"), (b"gate", b"A7"), (b"reply-to", b"desk")], NOW_NS + 2_500_000_000, 3)


class Settled:
    is_current = True

    def done(self) -> None: ...

    def retry(self, delay: float) -> None: ...

    def discard(self) -> None: ...


def fit(message: Carried, protocol: str) -> tuple[Outgoing, list[str]]:
    return fitted(message, protocol, "t", NOW_NS)


def test_each_protocol_gets_what_it_can_carry() -> None:
    assert fit(FULL, "nsq") == (Outgoing("t", FULL.body), ["ttl", "key", "header", "header", "header"])
    assert fit(FULL, "phpmq") == (Outgoing("t", FULL.body, ttl=2.5), ["key", "header", "header", "header"])
    assert fitted(FULL, "phpmq", "t", NOW_NS, has_ttl=False)[1] == ["ttl", "key", "header", "header", "header"]
    headers = {"KEYS": "BA9", "TAGS": "red", "gate": "A7", "reply-to": "desk"}
    assert fit(FULL, "nats") == (Outgoing("t", FULL.body, headers=headers), ["ttl"])
    properties = {"gate": "A7", "reply-to": "desk"}
    assert fit(FULL, "rocketmq") == (Outgoing("t", FULL.body, "BA9", properties, "red", order=3), ["ttl"])


@pytest.mark.parametrize("protocol", ["nsq", "phpmq", "nats", "rocketmq"])
def test_a_body_alone_loses_nothing(protocol: str) -> None:
    assert fit(Carried(b"x"), protocol) == (Outgoing("t", b"x"), [])


def test_a_ttl_is_never_none_because_it_is_nearly_over() -> None:
    assert fit(Carried(b"x", expiry_ns=NOW_NS + 1), "phpmq")[0].ttl == 1.0


UNSPEAKABLE_BY_NATS = [
    (b"a b", b"v"),
    (b"a:b", b"v"),
    (b"", b"v"),
    ("ä".encode(), b"v"),
    (b"n", b"a\nb"),
    (b"n", b"a\rb"),
    (b"n", b" v"),
    (b"n", b"\xff"),
]


@pytest.mark.parametrize("header", UNSPEAKABLE_BY_NATS)
def test_what_nats_cannot_say_is_left_out(header: tuple[bytes, bytes]) -> None:
    outgoing, dropped = fit(Carried(b"x", None, [header, (b"good", "ü".encode())]), "nats")
    assert (outgoing.headers, dropped) == ({"good": "ü"}, ["header"])
    frames.publish("t", outgoing.body, outgoing.headers)  # the client agrees


def test_the_key_of_nats_goes_before_a_header_of_its_name() -> None:
    outgoing, dropped = fit(Carried(b"x", b"k", [(b"KEYS", b"other")]), "nats")
    assert (outgoing.headers, dropped) == ({"KEYS": "k"}, ["header"])
    outgoing, dropped = fit(Carried(b"x", b"a\nb"), "nats")
    assert (outgoing.headers, dropped) == ({}, ["header"])


@pytest.mark.parametrize(
    "header",
    [
        (b"", b"v"),
        (b"n", b""),
        (b"n\x01", b"v"),
        (b"n", b"\x02"),
        (b"n", b"\xff"),
        *((name.encode(), b"v") for name in sorted(RESERVED - {"TAGS", "KEYS"})),
    ],
)
def test_what_rocketmq_cannot_say_is_left_out(header: tuple[bytes, bytes]) -> None:
    outgoing, dropped = fit(Carried(b"x", None, [header, (b"good", "ü".encode())]), "rocketmq")
    assert (outgoing.headers, dropped) == ({"good": "ü"}, ["header"])
    OutgoingMessage("t", b"x", outgoing.tags, outgoing.key.split(), outgoing.headers)  # the client agrees


@pytest.mark.parametrize("key", [b"a  b", b" a", b"a\x01", b"\xff", b""])
def test_a_key_that_rocketmq_cannot_say_is_left_out(key: bytes) -> None:
    outgoing, dropped = fit(Carried(b"x", key), "rocketmq")
    assert (outgoing.key, dropped) == ("", ["key"])


def test_keys_and_tags_of_rocketmq_may_come_as_headers() -> None:
    outgoing, dropped = fit(Carried(b"x", None, [(b"TAGS", b"red"), (b"KEYS", b"a b"), (b"TAGS", b"blue")]), "rocketmq")
    assert (outgoing.key, outgoing.tags, dropped) == ("a b", "blue", ["header"])
    outgoing, dropped = fit(Carried(b"x", b"k", [(b"TAGS", b"\x01"), (b"KEYS", b"a b")]), "rocketmq")
    assert (outgoing.key, outgoing.tags, outgoing.headers, dropped) == ("k", "", {}, ["header", "header"])


def test_of_a_name_that_is_there_twice_the_first_is_carried() -> None:
    twice = Carried(b"x", None, [(b"n", b"1"), (b"n", b"2")])
    for protocol in ("nats", "rocketmq"):
        outgoing, dropped = fit(twice, protocol)
        assert (outgoing.headers, dropped) == ({"n": "1"}, ["header"])


def test_more_properties_than_rocketmq_takes_are_left_out_in_their_order() -> None:
    large = b"v" * (PROPERTIES_SIZE_BYTES_MAX // 2)
    outgoing, dropped = fit(Carried(b"x", None, [(b"a", large), (b"b", large), (b"c", b"small")]), "rocketmq")
    assert (list(outgoing.headers), dropped) == (["a", "c"], ["header"])


def test_what_was_delivered_has_the_fields_of_a_record() -> None:
    message = BrokerMessage(Settled(), b"x", headers={"gate": "A7"}, key="BA9", tags="red", reply_to="desk")
    assert fields_of(message) == (b"BA9", [(b"gate", b"A7"), (b"TAGS", b"red"), (b"reply-to", b"desk")])
    assert fields_of(BrokerMessage(Settled(), b"x")) == (None, [])
    message = BrokerMessage(Settled(), b"x", headers={"TAGS": "a", "reply-to": "b"}, tags="a", reply_to="b")
    assert fields_of(message) == (None, [(b"TAGS", b"a"), (b"reply-to", b"b")])
