"""Rules of live messages, against a plain reading of the same lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core import live_rules
from polymq.core.access import STRANGER, Principal
from polymq.core.interest.targets import Target
from polymq.core.live_rules import AnswerRule, LiveAnswers, NameRule, PatternRules
from polymq.errors import Refusal, RefusalCode
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.core.interest.brute import brute_match, names, patterns

if TYPE_CHECKING:
    from tests.unit.core.conftest import World

SECOND_NS = 1_000_000_000
rules = st.builds(NameRule, patterns, st.sampled_from((b"", b"", b"q", b"q.*", b"*")))
queues = st.sampled_from((b"", b"q", b"q.a", b"q.*", b"r", b"*"))


def brute_names(found: list[NameRule], name: bytes) -> bool:
    return any(not rule.queue and brute_match(rule.pattern, name) for rule in found)


def brute_queue(found: list[NameRule], name: bytes, queue: bytes) -> bool:
    """What a list says of who comes in a group: the groups that are named there, else the name alone."""
    named = [rule.queue for rule in found if rule.queue and brute_match(rule.pattern, name)]
    if not named:
        return brute_names(found, name)
    return any(queue == each or brute_match(each, queue) for each in named)


@given(st.none() | st.lists(rules, max_size=4), st.lists(rules, max_size=4), st.lists(st.tuples(names | patterns, queues), max_size=12))
def test_what_may_be_done_is_what_the_lists_say(
    allow: list[NameRule] | None, deny: list[NameRule], asked: list[tuple[bytes, bytes]]
) -> None:
    found = PatternRules(publish_allow=allow, publish_deny=deny, listen_allow=allow, listen_deny=deny)
    for name, queue in asked * 2:
        if b"" in name.split(b"."):
            assert found.may_publish(name) is (allow is None)
            continue
        assert found.may_publish(name) is ((allow is None or brute_names(allow, name)) and not brute_names(deny, name))
        allowed = allow is None or (brute_queue(allow, name, queue) if queue else brute_names(allow, name))
        denied = brute_queue(deny, name, queue) if queue else brute_names(deny, name)
        assert found.may_listen(name, queue) is (allowed and not denied)


@given(st.none() | st.lists(rules, max_size=4), st.lists(rules, max_size=4), patterns, names, queues)
def test_what_may_be_heard_by_a_pattern_is_known(
    allow: list[NameRule] | None, deny: list[NameRule], pattern: bytes, name: bytes, queue: bytes
) -> None:
    """Who may hear everything that comes by a pattern needs not be asked for each name; who needs may not hear what is denied."""
    found = PatternRules(listen_allow=allow, listen_deny=deny)
    if b"" in name.split(b".") or not brute_match(pattern, name):
        return
    audible = (allow is None or any(brute_match(rule.pattern, name) for rule in allow)) and not brute_names(deny, name)
    assert found.may_hear(name) is audible
    if found.may_hear_all(pattern):
        assert audible
    named = [rule.queue for rule in deny if rule.queue and brute_match(rule.pattern, name)] if queue else []
    audible = audible and not any(queue == each or brute_match(each, queue) for each in named)
    for _ in range(2):
        assert found.may_hear(name, queue) is audible
    if found.may_hear_all(pattern, queue):
        assert audible


def test_a_pattern_that_lets_more_through_than_is_allowed_is_filtered() -> None:
    found = PatternRules(listen_allow=[NameRule(b"a.*")], listen_deny=[NameRule(b"a.secret")])
    assert found.may_listen(b"a.>", b""), "as with nats-server, which looks it up as a name"
    assert not found.may_hear_all(b"a.>")
    assert [name for name in (b"a.b", b"a.secret", b"a.b.c") if found.may_hear(name)] == [b"a.b"]
    assert found.may_hear_all(b"a.b")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_rules, "LIVE_RULES_NAMES_MAX", 10)
    found = PatternRules(publish_allow=[NameRule(b"a.*")], listen_deny=[NameRule(b"a.*")])
    for number in range(100):
        assert found.may_publish(b"a.%d" % number)
        assert not found.may_hear(b"a.%d" % number)
        assert len(found._publishable) <= 10
        assert len(found._audible) <= 10
    grouped = PatternRules(listen_deny=[NameRule(b"a.*", b"q")])
    for number in range(100):
        assert not grouped.may_hear(b"a.%d" % number, b"q")
        assert grouped.may_hear(b"a.%d" % number, b"r")
        assert len(grouped._audible_in) <= 10


def test_long_names_are_not_remembered() -> None:
    found = PatternRules(publish_allow=[NameRule(b"a.*")], listen_deny=[NameRule(b"a.*")])
    for size, remembered in ((limits.INTEREST_CACHED_NAME_SIZE_BYTES_MAX, 1), (limits.INTEREST_CACHED_NAME_SIZE_BYTES_MAX + 1, 0)):
        name = b"a.".ljust(size, b"x")
        for _ in range(2):
            assert found.may_publish(name)
            assert not found.may_hear(name)
        assert (name in found._publishable) + (name in found._audible) == 2 * remembered


# -- answers -----------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def answering(messages_max: int | None = 1, lifetime_ns: int | None = 10 * SECOND_NS) -> tuple[LiveAnswers, Clock]:
    clock = Clock()
    rules = PatternRules(publish_allow=[NameRule(b"own.>")], answers=AnswerRule(messages_max, lifetime_ns))
    found = rules.of_session(clock.monotonic_ns)
    assert isinstance(found, LiveAnswers)
    return found, clock


def test_rules_without_answers_are_shared() -> None:
    rules = PatternRules(publish_deny=[NameRule(b"x")])
    assert rules.of_session(Clock().monotonic_ns) is rules
    assert (rules.answering, rules.restricts_publishing) == (False, True)
    assert not PatternRules(listen_deny=[NameRule(b"x")]).restricts_publishing
    everything = PatternRules(answers=AnswerRule(1, 1))
    assert everything.of_session(Clock().monotonic_ns) is everything, "who may publish everything need not be allowed to answer"
    rules.heard(b"x")
    assert not rules.may_publish(b"x")


def test_a_session_may_answer_what_it_was_asked_and_no_other() -> None:
    rules = PatternRules(publish_allow=(), answers=AnswerRule(1, None))
    one, other = rules.of_session(Clock().monotonic_ns), rules.of_session(Clock().monotonic_ns)
    one.heard(b"inbox")
    assert not other.may_publish(b"inbox")
    assert one.may_publish(b"inbox")
    assert not one.may_publish(b"inbox"), "once"


def test_answers_are_counted_and_have_their_time() -> None:
    rules, clock = answering(2)
    rules.heard(b"inbox")
    assert [rules.may_publish(b"inbox") for _ in range(3)] == [True, True, False]
    rules.heard(b"inbox")
    clock.now_ns += 10 * SECOND_NS
    assert rules.may_publish(b"inbox")
    clock.now_ns += 1
    assert not rules.may_publish(b"inbox")
    assert not rules._open
    assert rules.may_publish(b"own.name")


def test_who_is_asked_again_may_answer_again() -> None:
    rules, clock = answering()
    rules.heard(b"inbox")
    clock.now_ns += 9 * SECOND_NS
    rules.heard(b"inbox")
    clock.now_ns += 9 * SECOND_NS
    assert [rules.may_publish(b"inbox") for _ in range(2)] == [True, False]


def test_answers_without_an_end() -> None:
    rules, clock = answering(None, None)
    rules.heard(b"inbox")
    clock.now_ns += 1 << 60
    assert all(rules.may_publish(b"inbox") for _ in range(100))


def test_where_answers_may_go_anyway_is_not_remembered() -> None:
    rules, _ = answering()
    rules.heard(b"own.inbox")
    assert not rules._open


def test_questions_that_nobody_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.LIVE_ANSWERS_MAX >= 4
    monkeypatch.setattr(live_rules, "LIVE_ANSWERS_MAX", 100)
    rules, clock = answering()
    for number in range(1000):
        rules.heard(b"%d" % number)
        assert len(rules._open) <= 100
    assert not rules.may_publish(b"0")
    assert rules.may_publish(b"999")
    assert rules.may_publish(b"930")
    clock.now_ns += 11 * SECOND_NS
    for number in range(100):
        rules.heard(b"later %d" % number)
    assert len(rules._open) == 100


def test_the_names_of_questions_that_nobody_answers_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.LIVE_ANSWERS_SIZE_BYTES_MAX <= 128 * limits.LIVE_ANSWERS_MAX
    monkeypatch.setattr(live_rules, "LIVE_ANSWERS_SIZE_BYTES_MAX", 1000)
    rules, clock = answering()
    for number in range(200):
        rules.heard(b"%d." % (number % 90) + b"x" * number)
        assert sum(map(len, rules._open)) == rules._size_bytes <= 1000
    assert rules.may_publish(b"19." + b"x" * 199)
    assert not rules.may_publish(b"19." + b"x" * 199)
    clock.now_ns += 11 * SECOND_NS
    for name in list(rules._open):
        assert not rules.may_publish(name)
    assert rules._size_bytes == 0


# -- at the door -------------------------------------------------------------------------------------------------------


def test_a_session_goes_by_its_rules(single: World) -> None:
    rules = PatternRules(
        publish_allow=[NameRule(b"a.*")], listen_allow=[NameRule(b"a.>")], listen_deny=[NameRule(b"a.x")], answers=AnswerRule(1, None)
    )
    session = single.broker.session(Principal("bound", live=rules))
    target = Target("me")
    with pytest.raises(Refusal) as refused:
        session.listen(b"b", target, tag=1)
    assert refused.value.code is RefusalCode.FORBIDDEN
    session.listen(b"a.y", target, tag=1)
    assert target.hears is None
    session.listen(b"a.*", target, tag=2)
    assert target.hears is not None
    assert (target.hears(b"a.x"), target.hears(b"a.z")) == (False, True)
    with pytest.raises(Refusal) as refused:
        session.publish_live(LiveBatch.of([LiveMessage(b"a.b", b""), LiveMessage(b"c", b"")]))
    assert refused.value.code is RefusalCode.FORBIDDEN
    assert session.publish_live(LiveBatch.of([LiveMessage(b"a.b.c", b"")]), checked=True) == 1
    assert session.live is not None
    session.live.heard(b"inbox")
    assert session.publish_live(LiveBatch.of([LiveMessage(b"inbox", b"")])) == 1
    session.login(Principal("free"))
    assert session.live is None
    assert session.publish_live(LiveBatch.of([LiveMessage(b"c", b"")])) == 1


def test_a_stranger_may_do_nothing(single: World) -> None:
    session = single.broker.session(STRANGER)
    for act in (lambda: session.listen(b"a", Target(), tag=1), lambda: session.publish_live(LiveBatch.of([]), checked=True)):
        with pytest.raises(Refusal) as refused:
            act()
        assert refused.value.code is RefusalCode.UNAUTHENTICATED
