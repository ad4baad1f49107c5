from __future__ import annotations

import logging
import random

import pytest

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Target
from polymq.core.live import Live
from polymq.gateways.nats.remote_interest import RemoteInterest
from polymq.gateways.nats.route_accounts import RouteAccounts
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.events import RemoteSubscribe, RemoteUnsubscribe
from polymq.protocols.nats.info import Permissions


class Route:
    def __init__(self, rules: RouteRules | None = None, *, system: str = "") -> None:
        self.live = Live(random.Random(1))
        self.target = Target(self, remote=True)
        self.accounts = RouteAccounts(self.live, ["A"], system)
        self.interest = RemoteInterest(self.accounts, rules or RouteRules(), self.target, "10.0.0.9:1")

    def add(self, subject: bytes, queue: bytes = b"", weight: int = 1, *, account: bytes = b"$G") -> None:
        self.interest.add(RemoteSubscribe(account, subject, queue, weight))

    def remove(self, subject: bytes, queue: bytes = b"", *, account: bytes = b"$G") -> None:
        self.interest.remove(RemoteUnsubscribe(account, subject, queue))

    def has(self, subject: bytes, *, account: str = "") -> bool:
        return self.live.space(account).interest.has(subject)


def test_entries_come_and_go_by_account_subject_and_group() -> None:
    route = Route()
    route.add(b"a")
    route.add(b"a", account=b"A")
    route.add(b"a", b"q")
    assert len(route.interest) == 3
    assert [entry.tag for entry in route.target.entries] == [0, 1, 0]
    route.remove(b"a")
    assert route.has(b"a")  # the group
    route.remove(b"a", b"q")
    assert not route.has(b"a")
    assert route.has(b"a", account="A")
    route.remove(b"a", account=b"A")
    assert len(route.interest) == 0
    assert route.target.entries == []


def test_what_comes_twice_counts_once() -> None:
    route = Route()
    route.add(b"a")
    route.add(b"a")
    assert len(route.target.entries) == 1
    route.remove(b"a")
    assert not route.has(b"a")
    route.remove(b"a")


def test_a_group_that_comes_again_has_another_weight() -> None:
    route = Route()
    route.add(b"a", b"q", 3)
    (entry,) = route.target.entries
    route.add(b"a", b"q", 7)
    assert (len(route.target.entries), entry.weight) == (1, 7)
    route.add(b"a", b"q", 0)
    assert not route.has(b"a")
    route.add(b"a", b"q", 1)
    assert route.has(b"a")


@pytest.mark.parametrize("subject", [b"a..b", b".a", b"a.", b">.a", b"a.>.b"])
def test_what_is_no_subject_is_passed_over(subject: bytes) -> None:
    route = Route()
    route.add(subject)
    route.remove(subject)
    assert route.target.entries == []


def test_what_may_not_go_out_is_passed_over() -> None:
    route = Route(RouteRules(exports=Permissions(deny=("secret.>",))))
    route.add(b"secret.a")
    route.add(b"a")
    assert len(route.interest) == 1


def test_accounts_that_are_not_known_are_passed_over() -> None:
    route = Route()
    for account in (b"$SYS", b"B", b""):
        route.add(b"a", account=account)
        route.remove(b"a", account=account)
    assert route.target.entries == []


def test_an_account_may_have_ears_for_some_subjects_only_and_tell_of_it() -> None:
    route = Route(system="S")
    told: list[int] = []
    system = route.accounts.system
    assert system is not None
    system.only, system.changed = frozenset((b"a.>",)), lambda: told.append(len(route.interest))
    for subject, queue in ((b"a.b", b""), (b">", b""), (b"a.>", b"q")):
        route.add(subject, queue, account=b"S")
        route.remove(subject, queue, account=b"S")
    route.add(b"a.>")
    assert told == []
    for _ in range(2):
        route.add(b"a.>", account=b"S")
    route.remove(b"a.>", account=b"S")
    assert told == [2, 1]
    route.remove(b"a.>", account=b"S")
    route.add(b"a.>", account=b"S")
    route.live.dismiss(route.target)
    route.interest.forget()
    route.interest.forget()
    assert told == [2, 1, 2, 0]


def test_a_flood_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    route = Route()
    route.live.space().interest = Interest(entries_max=3)
    for number in range(10):
        route.add(b"a.%d" % number)
    assert len(route.interest) == 3
    assert len(caplog.records) == 1
    route.remove(b"a.9")
    route.remove(b"a.0")
    assert len(route.interest) == 2


def test_the_entries_are_forgotten_when_the_core_takes_them_out() -> None:
    route = Route()
    route.add(b"a")
    route.live.dismiss(route.target)
    route.interest.forget()
    route.live.tick()
    assert (len(route.interest), route.target.entries) == (0, [])
