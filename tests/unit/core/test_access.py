from __future__ import annotations

import pytest

from polymq.core.access import ANONYMOUS, STRANGER, Action, ByPermissions, Permission, Principal
from polymq.core.patterns import compile_pattern
from polymq.errors import Refusal, RefusalCode
from tests.unit.core.conftest import World


def permission(topic: str, *groups: str, actions: tuple[Action, ...] = (Action.SUBSCRIBE,)) -> Permission:
    return Permission(frozenset(actions), compile_pattern(topic), tuple(map(compile_pattern, groups)))


def principal(*permissions: Permission) -> Principal:
    return Principal("somebody", permissions=permissions)


def code_of(session: object, door: str, *arguments: object, **more: object) -> RefusalCode:
    with pytest.raises(Refusal) as refused:
        getattr(session, door)(*arguments, **more)
    return refused.value.code


@pytest.mark.parametrize(
    ("action", "topic", "group", "allowed"),
    [
        (Action.SUBSCRIBE, "a1", "g", True),
        (Action.SUBSCRIBE, "a1", "h", False),
        (Action.SUBSCRIBE, "b1", "g", False),
        (Action.PUBLISH, "a1", "", False),
        (Action.PUBLISH, "b1", "", True),
        (Action.SUBSCRIBE, "b1", "", False),
    ],
)
def test_any_permission_is_enough(action: Action, topic: str, group: str, allowed: bool) -> None:
    who = principal(permission("^a", "^g$"), permission("^b", actions=(Action.PUBLISH, Action.READ)))
    assert ByPermissions().allows(who, action, topic, group) is allowed


def test_where_nobody_is_asked_everything_is_allowed() -> None:
    assert all(ByPermissions().allows(ANONYMOUS, action, "t", "g") for action in Action)
    assert not any(ByPermissions().allows(STRANGER, action, "t", "g") for action in Action)


@pytest.fixture
def single() -> World:
    return World(1)


def test_a_stranger_is_told_to_log_in(single: World) -> None:
    session = single.broker.session(STRANGER)
    assert code_of(session, "create_topic", "t") is RefusalCode.UNAUTHENTICATED
    session.login(principal(permission("^t$", actions=(Action.MANAGE,))))
    session.create_topic("t")
    assert code_of(session, "create_topic", "u") is RefusalCode.FORBIDDEN
    assert session.topic_names() == []


def test_a_login_expires_and_is_renewed(single: World) -> None:
    session = single.broker.session(STRANGER)
    who = principal(permission("", actions=(Action.MANAGE, Action.PUBLISH)))
    session.login(who)
    session.ensure_topic("t")
    session.expire()
    assert code_of(session, "create_topic", "t") is RefusalCode.LOGIN_EXPIRED
    assert code_of(session, "ensure_topic", "t") is RefusalCode.LOGIN_EXPIRED
    session.login(who)
    session.ensure_topic("t")


def test_who_published_is_shown_to_who_may_read_it(single: World) -> None:
    single.publish("a", b"x")
    reader = single.broker.session(principal(permission("^a$", actions=(Action.READ,))))
    other = single.broker.session(principal(permission("^b$", actions=(Action.READ,))))
    assert len(reader.producers()) == len(single.session.producers()) == 1
    assert other.producers() == ()
    single.publish("c", b"x")
    assert [view.published for view in reader.producers()] == [(("a", 1),)], "not even the names of other topics"
    assert [view.published for view in single.session.producers()] == [(("a", 1), ("c", 1))]


def test_what_may_be_done_everywhere() -> None:
    assert ANONYMOUS.may_everywhere(Action.MANAGE)
    assert not STRANGER.may_everywhere(Action.READ)
    everywhere = principal(permission("", actions=(Action.READ,)))
    assert everywhere.may_everywhere(Action.READ)
    assert not everywhere.may_everywhere(Action.MANAGE)
    assert not principal(permission("^a", actions=(Action.READ,))).may_everywhere(Action.READ)


@pytest.mark.parametrize("action", Action)
def test_who_may_change_a_policy_may_see_it(single: World, action: Action) -> None:
    single.publish("t", b"x")
    single.session.create_group("t", "g")
    session = single.broker.session(principal(permission("^t$", "^g$", actions=(action,))))
    if action in (Action.READ, Action.MANAGE):
        assert session.topic_policy("t") == single.session.topic_policy("t")
        assert session.group_policy("t", "g") == single.session.group_policy("t", "g")
        assert session.partition_count("t") == 1
    else:
        assert code_of(session, "topic_policy", "t") is RefusalCode.FORBIDDEN
        assert code_of(session, "group_policy", "t", "g") is RefusalCode.FORBIDDEN
        assert code_of(session, "partition_count", "t") is RefusalCode.FORBIDDEN
    assert code_of(session, "group_policy", "t", "h") in (RefusalCode.FORBIDDEN, RefusalCode.GROUP_NOT_FOUND)


def test_one_partition_is_replayed_by_who_may_manage_and_not_read() -> None:
    world = World(4)
    world.publish("t", b"x")
    world.session.create_group("t", "g")
    session = world.broker.session(principal(permission("", "", actions=(Action.MANAGE,))))
    assert session.partition_count("t") == 4
    assert session.replay("t", "g", offset=0, partition=3)
    assert code_of(session, "replay", "t", "g", offset=0, partition=4) is RefusalCode.TOPIC_NOT_FOUND
    assert code_of(session, "partition_count", "u") is RefusalCode.TOPIC_NOT_FOUND
