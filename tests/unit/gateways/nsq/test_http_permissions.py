"""What is the same for each of polymq's own endpoints: the permission it asks for, and that a change is kept before it is answered."""

from __future__ import annotations

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import compile_pattern
from polymq.core.ports import TicketState
from polymq.core.session import Session
from tests.unit.core.fakes import FakeTicket
from tests.unit.gateways.nsq.http_world import NsqWorld, message, parse

READ, MANAGE = {Action.READ}, {Action.MANAGE}
ENDPOINTS = [
    ("GET", "/topic/policy?topic=t", READ | MANAGE),
    ("POST", "/topic/policy?topic=t&ttl=5", MANAGE),
    ("GET", "/topic/peek?topic=t", READ),
    ("GET", "/topic/deferred?topic=t", READ),
    ("POST", "/topic/cancel?topic=t&id=<deferred>", MANAGE),
    ("GET", "/channel/policy?topic=t&channel=c", READ | MANAGE),
    ("POST", "/channel/policy?topic=t&channel=c&ordered=1", MANAGE),
    ("GET", "/channel/peek?topic=t&channel=c", READ),
    ("GET", "/channel/deferred?topic=t&channel=c", READ),
    ("POST", "/channel/replay?topic=t&channel=c&from=start", MANAGE),
    ("POST", "/channel/replay?topic=t&channel=c&from=start&partition=0", MANAGE),
]


def world_of(*permissions: Permission) -> tuple[NsqWorld, str]:
    """A world in which somebody asks who may do so much, and the id of a deferred message."""
    world = NsqWorld()
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    world.publish("t", b"x", delay_ns=10**12)
    world.turn()
    (deferred,) = world.session.scheduled("t") or []
    world.context.session = world.broker.session(Principal("somebody", permissions=permissions))
    return world, f"{deferred.id:016x}"


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize(("method", "path", "enough"), ENDPOINTS)
def test_one_permission_is_enough_and_the_others_are_not(method: str, path: str, enough: set[Action], action: Action) -> None:
    world, deferred = world_of(Permission(frozenset({action}), compile_pattern("^t$"), (compile_pattern("^c$"),)))
    answer = world.ask(method, path.replace("<deferred>", deferred))
    if action in enough:
        assert answer.status == 200, answer
    else:
        assert message(answer) == (403, "FORBIDDEN")


@pytest.mark.parametrize("path", [path for method, path, _enough in ENDPOINTS if method == "POST"])
@pytest.mark.parametrize("state", [TicketState.DONE, TicketState.FAILED])
def test_a_change_is_answered_when_it_is_kept(monkeypatch: pytest.MonkeyPatch, path: str, state: TicketState) -> None:
    world, deferred = world_of(Permission(frozenset(Action), compile_pattern(""), (compile_pattern(""),)))
    ticket = FakeTicket()
    monkeypatch.setattr(Session, "journaled", lambda _session: ticket)
    wire = world.raw(f"POST {path.replace('<deferred>', deferred)} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert wire.output == b""
    ticket.state = state
    wire.settle()
    if state is TicketState.DONE:
        assert parse(wire.output).status == 200
    else:
        assert message(parse(wire.output)) == (503, "EXITING")


@pytest.mark.parametrize(("method", "path", "enough"), ENDPOINTS)
def test_permissions_for_other_topics_and_channels_are_none(method: str, path: str, enough: set[Action]) -> None:
    del enough
    everything = frozenset(Action)
    world, deferred = world_of(Permission(everything, compile_pattern("^u$"), (compile_pattern(""),)))
    assert message(world.ask(method, path.replace("<deferred>", deferred))) == (403, "FORBIDDEN")
    if "channel=" in path and "partition=" not in path:
        world, deferred = world_of(Permission(everything, compile_pattern("^t$"), (compile_pattern("^d$"),)))
        assert message(world.ask(method, path.replace("<deferred>", deferred))) == (403, "FORBIDDEN")
