"""What a NATS client may subscribe to; tests/unit/gateways/nats/test_client.py and test_permissions.py have what it is told."""

from __future__ import annotations

import pytest

from polymq.core.live_rules import NameRule, PatternRules
from polymq.errors import RefusalCode
from polymq.gateways.nats.subscribing import refused, subscribe_problem
from polymq.protocols.nats import problems
from polymq.protocols.nats.events import Subscribe
from polymq.protocols.nats.settings import NatsSettings


def asked(subject: bytes, queue: bytes = b"") -> Subscribe:
    return Subscribe(subject, b"1", queue)


@pytest.mark.parametrize(
    ("event", "count", "problem"),
    [
        (asked(b"a.b"), 1, None),
        (asked(b"a.b", b"q"), 1, None),
        (asked(b"a..b"), 1, problems.INVALID_SUBJECT),
        (asked(b"a.b"), 2, problems.SUBSCRIPTIONS_EXCEEDED),
        (asked(b"a.b.c.d"), 1, problems.too_many_tokens(b"a.b.c.d")),
        (asked(b"secret"), 1, problems.subscription_forbidden(b"secret")),
        (asked(b"a", b"_sys_"), 1, problems.subscription_forbidden(b"a", b"_sys_")),
    ],
)
def test_what_is_wrong_with_a_subscription(event: Subscribe, count: int, problem: bytes | None) -> None:
    settings = NatsSettings(subscriptions_max=2, subscription_tokens_max=3)
    assert subscribe_problem(event, PatternRules(listen_deny=[NameRule(b"secret")]), settings, count) == problem


def test_every_refusal_has_its_words() -> None:
    words = {code: refused(code, asked(b"a", b"q")) for code in RefusalCode}
    forbidden = problems.subscription_forbidden(b"a", b"q")
    assert {code for code, said in words.items() if said == forbidden} == {RefusalCode.FORBIDDEN, RefusalCode.UNAUTHENTICATED}
    assert {code for code, said in words.items() if said == problems.SUBSCRIPTIONS_EXCEEDED} == {
        RefusalCode.LIMIT_REACHED,
        RefusalCode.GROUP_FULL,
    }
    assert set(words.values()) == {forbidden, problems.SUBSCRIPTIONS_EXCEEDED, problems.INVALID_SUBJECT}
