from __future__ import annotations

import random

import pytest

from polymq.core.interest.targets import Target
from polymq.core.live import Live, LiveSpace
from polymq.gateways.nats.route_accounts import RouteAccounts
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.info import Permissions

ANYTHING = RouteRules()


class Watching:
    """Accounts that are told of every change, and what they have said of it."""

    def __init__(self, *names: str, rules: RouteRules = ANYTHING) -> None:
        self.live = Live(random.Random(1))
        self.accounts = RouteAccounts(self.live, names)
        self.rules = rules
        self.said: list[bytes] = []
        self.target = Target()
        self.live.watchers.append(self)

    def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
        self.said.append(self.accounts.by_namespace[space.namespace].change(pattern, queue, self.rules))


def test_accounts_have_names_namespaces_and_numbers() -> None:
    watching = Watching("A", "B", "A", "$G")
    assert list(watching.accounts.by_name) == [b"$G", b"A", b"B"]
    assert list(watching.accounts.by_namespace) == ["", "A", "B"]
    assert [(each.name, each.number, each.space.namespace) for each in watching.accounts.by_number] == [
        (b"$G", 0, ""),
        (b"A", 1, "A"),
        (b"B", 2, "B"),
    ]


def test_the_servers_own_account_is_there_for_who_asks_in_it() -> None:
    live = Live(random.Random(1))
    assert RouteAccounts(live, ["A"]).system is None
    accounts = RouteAccounts(live, ["SYS2", "A"], "SYS")
    system = accounts.system
    assert system is not None
    assert (system.name, system.number, accounts.by_name[b"SYS"]) == (b"SYS", 3, system)
    # Whoever logs in to an account of that name here is apart from it.
    assert system.space is not live.space("SYS")
    assert accounts.by_namespace[system.space.namespace] is system
    system.space.listen(b"a", Target(), tag=0)
    assert system.change(b"a", b"", ANYTHING) == b"RS+ SYS a\r\n"
    assert list(accounts.whole()) == [b"RS+ SYS a\r\n"]


def test_only_the_first_and_the_last_listener_make_a_difference() -> None:
    watching = Watching("A")
    space = watching.live.space("A")
    entries = [space.listen(b"a.*", watching.target, tag=0) for _ in range(3)]
    for entry in entries:
        space.leave(entry)
    assert watching.said == [b"RS+ A a.*\r\n", b"", b"", b"", b"", b"RS- A a.*\r\n"]


def test_of_a_group_each_listener_makes_a_difference() -> None:
    watching = Watching()
    space = watching.live.space()
    space.listen(b"a", watching.target, tag=0)
    entries = [space.listen(b"a", watching.target, tag=0, queue=b"q") for _ in range(2)]
    for entry in entries:
        space.leave(entry)
    assert watching.said == [b"RS+ $G a\r\n", b"RS+ $G a q 1\r\n", b"RS+ $G a q 2\r\n", b"RS+ $G a q 1\r\n", b"RS- $G a q\r\n"]


@pytest.mark.parametrize("queue", [b"", b"q"])
def test_a_change_that_is_none_says_nothing(queue: bytes) -> None:
    watching = Watching()
    account = watching.accounts.by_name[b"$G"]
    assert account.change(b"a", queue, ANYTHING) == b""
    watching.live.space().listen(b"a", watching.target, tag=0, queue=queue)
    assert account.change(b"a", queue, ANYTHING) == b""


@pytest.mark.parametrize(
    ("pattern", "queue"), [(b"a b", b""), (b"a\r\nb", b""), (b"a", b"q r"), (b"a", b"q\tr"), (b"no.x", b""), (b"no.x", b"q")]
)
def test_what_cannot_be_written_or_may_not_come_in_is_not_told(pattern: bytes, queue: bytes) -> None:
    watching = Watching(rules=RouteRules(Permissions(deny=("no.>",))))
    space = watching.live.space()
    entries = [space.listen(pattern, watching.target, tag=0, queue=queue) for _ in range(2)]
    assert list(watching.accounts.whole()) == []
    for entry in entries:
        space.leave(entry)
    assert set(watching.said) == {b""}


def test_the_whole_has_a_line_for_each_thing() -> None:
    watching = Watching("A")
    for namespace, pattern, queue in (("", b"a", b""), ("", b"a", b""), ("A", b"b", b"q"), ("A", b"b", b"q"), ("A", b"c", b"")):
        watching.live.space(namespace).listen(pattern, watching.target, tag=0, queue=queue)
    assert list(watching.accounts.whole()) == [b"RS+ $G a\r\n", b"RS+ A c\r\n", b"RS+ A b q 2\r\n"]


def test_the_whole_is_true_when_it_is_told() -> None:
    watching = Watching()
    space = watching.live.space()
    entries = [space.listen(name, watching.target, tag=0) for name in (b"a", b"b", b"c")]
    group = space.listen(b"a", watching.target, tag=0, queue=b"q")
    whole = watching.accounts.whole()
    assert next(whole) == b"RS+ $G a\r\n"
    space.leave(entries[1])
    space.leave(group)
    space.listen(b"a", watching.target, tag=0, queue=b"r")
    assert list(whole) == [b"RS+ $G c\r\n", b"RS+ $G a r 1\r\n"]
