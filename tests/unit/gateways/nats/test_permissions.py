"""A client that may not do everything: what it is told, and what it gets. Every line is nats-server's (2.9.10 and 2.15.2)."""

from __future__ import annotations

from typing import Any

from polymq.core.access import Principal
from polymq.core.live_rules import AnswerRule, NameRule, PatternRules
from polymq.gateways.nats.logins import NatsUser, UserLogins
from tests.unit.gateways.nats.client_world import Guest, NatsWorld

SECOND_NS = 1_000_000_000


def world(**rules: Any) -> tuple[NatsWorld, Guest, Guest]:
    """Somebody with rules, and somebody without who hears everything."""
    rules = {key: value if isinstance(value, AnswerRule) else [NameRule(*each.split()) for each in value] for key, value in rules.items()}
    users = [NatsUser(Principal("bound", live=PatternRules(**rules)), "bound"), NatsUser(Principal("free"), "free")]
    made = NatsWorld(UserLogins(users, digest_key=b"k"))
    return made, made.guest(connect("bound")), made.guest(connect("free"), b"SUB > 1\r\n")


def connect(user: str, more: str = "") -> bytes:
    return b'CONNECT {"verbose":false,"pedantic":false,"user":"%b"%b}\r\n' % (user.encode(), more.encode())


def test_what_may_not_be_published_is_answered_in_its_place() -> None:
    _, bound, free = world(publish_allow=[b"a.*", b"b.>"], publish_deny=[b"a.x"])
    bound.say(b"SUB > 1\r\n")
    assert bound.say(b"PUB b.c 1\r\nx\r\nPUB q 0\r\n\r\nPUB a.x 1\r\ny\r\nPUB a.c 1\r\ny\r\nPUB a.d 1\r\nz\r\nPING\r\n") == (
        b"MSG b.c 1 1\r\nx\r\n-ERR 'Permissions Violation for Publish to \"q\"'\r\n"
        b"-ERR 'Permissions Violation for Publish to \"a.x\"'\r\nMSG a.c 1 1\r\ny\r\nMSG a.d 1 1\r\nz\r\nPONG\r\n"
    )
    assert free.heard() == b"MSG b.c 1 1\r\nx\r\nMSG a.c 1 1\r\ny\r\nMSG a.d 1 1\r\nz\r\n"
    assert bound.closed is None


def test_a_verbose_client_is_told_of_each() -> None:
    _, bound, _ = world(publish_allow=[b"a.*"])
    bound.say(connect("bound", ',"verbose":true'))
    assert bound.say(b"PUB a.b 0\r\n\r\nPUB q 0\r\n\r\nPUB a.c 0\r\n\r\n") == (
        b"+OK\r\n-ERR 'Permissions Violation for Publish to \"q\"'\r\n+OK\r\n"
    )


def test_of_two_things_that_are_wrong_the_permission_is_told() -> None:
    _, bound, _ = world(publish_allow=[b"a.*"])
    assert bound.say(b"PUB q _R_.a 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish to \"q\"'\r\n"
    assert bound.say(b"PUB a.b _R_.a 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.a\"'\r\n"
    bound.say(connect("bound", ',"pedantic":true'))
    assert bound.say(b"PUB b..y 0\r\n\r\n") == (
        b"-ERR 'Invalid Publish Subject'\r\n-ERR 'Permissions Violation for Publish to \"b..y\"'\r\n"
    )


def test_subscriptions_are_allowed_with_their_queue_groups() -> None:
    _, bound, _ = world(listen_allow=[b"foo q1", b"bar", b"baz q.*"], listen_deny=[b"bar bad"])
    assert bound.say(b"SUB foo 1\r\n") == b"-ERR 'Permissions Violation for Subscription to \"foo\"'\r\n"
    assert bound.say(b"SUB foo q2 2\r\n") == b'-ERR \'Permissions Violation for Subscription to "foo" using queue "q2"\'\r\n'
    assert bound.say(b"SUB foo q1 3\r\nSUB bar 4\r\nSUB bar q2 5\r\nSUB baz q.a 6\r\n") == b""
    assert bound.say(b"SUB bar bad 7\r\nSUB baz q.> 8\r\n") == (
        b'-ERR \'Permissions Violation for Subscription to "bar" using queue "bad"\'\r\n'
        b'-ERR \'Permissions Violation for Subscription to "baz" using queue "q.>"\'\r\n'
    )
    assert sorted(bound.gateway.subscriptions) == [b"3", b"4", b"5", b"6"]


def test_what_is_denied_in_part_is_left_out_when_it_comes() -> None:
    _, bound, free = world(listen_deny=[b"secret.>"])
    assert bound.say(b"SUB secret.a 1\r\n") == b"-ERR 'Permissions Violation for Subscription to \"secret.a\"'\r\n"
    assert bound.say(b"SUB > 2\r\n") == b""
    free.say(b"PUB secret.a 1\r\nx\r\nPUB open 1\r\ny\r\n")
    assert bound.heard() == b"MSG open 2 1\r\ny\r\n"


def test_what_is_denied_to_a_group_is_left_out_of_what_comes_to_it() -> None:
    """As nats-server 2.15.2 does; 2.9.10 gives it to whoever asks for more than that."""
    _, bound, free = world(listen_allow=[b"t.>", b"t.> q1", b"t.> q2", b"t.* q1"], listen_deny=[b"t.no q1"])
    assert b"Permissions Violation" in bound.say(b"SUB t.no q1 1\r\n")
    for sid, said in enumerate((b"t.>", b"t.> q1", b"t.* q1", b"t.> q2")):
        bound.say(b"SUB %b %d\r\n" % (said, sid))
        free.say(b"PUB t.no 1\r\nn\r\nPUB t.yes 1\r\ny\r\n")
        bound_heard = bound.heard()
        assert bound_heard.count(b"MSG t.yes %d 1" % sid) == 1
        assert bound_heard.count(b"MSG t.no %d 1" % sid) == (b"q1" not in said)
        bound.say(b"UNSUB %d\r\n" % sid)


def test_what_a_member_may_not_hear_goes_to_another_one() -> None:
    made, bound, free = world(listen_deny=[b"secret.>"])
    bound.say(b"SUB > group 1\r\n")
    other = made.guest(connect("free"), b"SUB > group 2\r\n")
    free.say(b"PUB secret.a 1\r\nx\r\n" * 20)
    assert (bound.heard(), other.heard()) == (b"", b"MSG secret.a 2 1\r\nx\r\n" * 20)
    free.say(b"PUB open 1\r\nx\r\n" * 20)
    assert bound.heard()


def test_a_question_that_nobody_may_hear_has_no_responders() -> None:
    made, bound, _ = world(listen_deny=[b"secret.>"])
    bound.say(b"SUB *.* 1\r\n")
    asking = made.guest(connect("free", ',"headers":true,"no_responders":true'), b"SUB inbox.* 1\r\n")
    made.guests[asking.gateway].heard()
    for other in [guest for guest in made.guests.values() if guest not in (bound, asking)]:
        other.say(b"UNSUB 1\r\n")
    assert b"503" in asking.say(b"PUB secret.a inbox.1 1\r\nx\r\n")
    assert b"503" not in asking.say(b"PUB open.a inbox.1 1\r\nx\r\n")


def test_who_logs_in_as_somebody_else_hears_everything_again() -> None:
    _, bound, free = world(listen_deny=[b"secret.>"])
    bound.say(b"SUB > 1\r\n")
    bound.say(connect("free") + b"SUB > 2\r\n")
    free.say(b"PUB secret.a 1\r\nx\r\n")
    assert bound.heard() == b"MSG secret.a 2 1\r\nx\r\n"


def test_who_is_asked_may_answer() -> None:
    made, bound, free = world(publish_allow=[], answers=AnswerRule(1, SECOND_NS))
    bound.say(b"SUB service 1\r\n")
    violation = b"-ERR 'Permissions Violation for Publish to \"inbox.1\"'\r\n"
    assert bound.say(b"PUB inbox.1 1\r\nx\r\n") == violation
    free.say(b"PUB service inbox.1 1\r\nq\r\n")
    assert bound.heard() == b"MSG service 1 inbox.1 1\r\nq\r\n"
    free.heard()
    assert bound.say(b"PUB inbox.1 1\r\na\r\nPUB inbox.1 1\r\nb\r\n") == violation
    assert free.heard() == b"MSG inbox.1 1 1\r\na\r\n"
    free.say(b"PUB service inbox.1 1\r\nq\r\n")
    bound.heard()
    made.clock.now_ns += SECOND_NS + 1
    assert bound.say(b"PUB inbox.1 1\r\na\r\n") == violation, "too late"
