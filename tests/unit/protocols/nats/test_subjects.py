from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.nats import problems, subjects
from polymq.wire.live import LiveBatch, LiveMessage

VALID = [b"a", b"a.b", b"*", b">", b"*.*.>", b"a.*.b", b"a.>", b">a", b"a>.b", b"a*.b*", b"*a.b", b"\xc3\xa9.\x01", b"$SYS.x", b"_INBOX.x"]
INVALID = [b"", b".", b".a", b"a.", b"a..b", b">.a", b"a.>.b", b"a.>.", b"a b", b"a\tb", b"a\r", b"a\nb"]


@pytest.mark.parametrize("subject", VALID)
def test_valid_subscriptions(subject: bytes) -> None:
    assert subjects.is_valid_subscription(subject)


@pytest.mark.parametrize("subject", INVALID)
def test_invalid_subscriptions(subject: bytes) -> None:
    assert not subjects.is_valid_subscription(subject)
    assert not subjects.is_valid_literal(subject)


@pytest.mark.parametrize(
    ("subject", "literal", "wild"),
    [
        (b"a.b", True, False),
        (b"a.*", False, True),
        (b"*", False, True),
        (b">", False, True),
        (b"a.>", False, True),
        (b"*.a", False, True),
        (b"a*.>b", True, False),
        (b"a>", True, False),
    ],
)
def test_literals_and_wildcards(subject: bytes, literal: bool, wild: bool) -> None:
    assert subjects.is_valid_literal(subject) is literal
    assert subjects.has_wildcards(subject) is wild


@given(st.lists(st.sampled_from([b"a", b"*", b">", b"", b"a*", b">>"]), min_size=1, max_size=5).map(b".".join))
def test_a_valid_subscription_is_either_literal_or_wild(subject: bytes) -> None:
    if subjects.is_valid_subscription(subject):
        assert subjects.is_valid_literal(subject) is not subjects.has_wildcards(subject)


@pytest.mark.parametrize(("tokens_max", "many"), [(0, False), (2, True), (3, False), (4, False)])
def test_too_many_tokens(tokens_max: int, many: bool) -> None:
    assert subjects.has_many_tokens(b"a.b.c", tokens_max) is many


@pytest.mark.parametrize(
    ("subject", "reply", "texts", "dropped"),
    [
        (b"a", b"", [], False),
        (b"a", b"_INBOX.x", [], False),
        (b"$NRG.a", b"", [problems.publish_forbidden(b"$NRG.a")], True),
        (b"$NRG.", b"", [problems.publish_forbidden(b"$NRG.")], True),
        (b"$NRGa", b"", [], False),
        (b"_GR_.\n", b"", [problems.publish_forbidden(b"_GR_.\n")], True),
        (b"$SYS.REQ", b"$SYS.x", [], False),
        (b"a", b"$NRG.x", [], False),
    ],
)
def test_the_servers_own_names(subject: bytes, reply: bytes, texts: list[bytes], dropped: bool) -> None:
    # What nats-server 2.9.10 says of the other names is in test_golden.py; $NRG became reserved in 2.11.
    batch = LiveBatch.of([LiveMessage(b"before", b""), LiveMessage(subject, b"", reply=reply)])
    assert subjects.publish_problem(batch, 1, pedantic=False) == (texts, dropped)


ACK = b"$JS.ACK.stream.consumer.1.2.3.1700000000000000000.0"
