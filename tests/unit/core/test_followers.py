from __future__ import annotations

from typing import TYPE_CHECKING

from .conftest import World, inbox

if TYPE_CHECKING:
    from polymq.core.group import GroupKind


class Follower:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def topic_created(self, namespace: str, topic: str) -> None:
        self.heard.append(f"+{namespace}{topic}")

    def topic_deleted(self, namespace: str, topic: str) -> None:
        self.heard.append(f"-{namespace}{topic}")

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        self.heard.append(f"+{namespace}{topic}/{group} {kind.value}")

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        self.heard.append(f"-{namespace}{topic}/{group} {kind.value}")


def test_a_follower_hears_of_every_way_to_come_and_go(single: World) -> None:
    follower = Follower()
    single.broker.follow(follower)
    single.publish("a", b"x")
    single.consume("b", "g", 1)
    single.session.commit_offset("a", "cursor", 0, 0)
    last = single.consume("e", "x", 1, ephemeral_topic=True, ephemeral_group=True)
    assert follower.heard == ["+a", "+b", "+b/g work", "+a/cursor cursor", "+e", "+e/x work"]
    follower.heard.clear()
    single.session.unsubscribe(last)
    single.session.delete_group("a", "cursor")
    single.session.delete_topic("b")
    assert follower.heard == ["-e/x work", "-e", "-a/cursor cursor", "-b/g work", "-b"]
    follower.heard.clear()
    single.broker.unfollow(follower)
    single.session.create_topic("c")
    assert follower.heard == []
    single.broker.unfollow(follower)


def test_who_comes_late_is_told_what_there_is(single: World) -> None:
    single.session.create_topic("a")
    single.session.create_group("a", "g")
    single.restart()
    follower = Follower()
    single.broker.tell(follower)
    assert follower.heard == ["+a", "+a/g work"]


def test_a_topic_that_is_withheld_gives_every_group_its_first_message(world: World) -> None:
    world.session.create_topic("t")
    world.session.withhold_topic("t", withheld=True)
    early = world.consume("t", "early", 10)
    world.publish("t", b"one")
    world.turn()
    assert inbox(early).bodies == []
    late = world.consume("t", "late", 10)
    world.session.withhold_topic("t", withheld=False)
    world.turn()
    assert inbox(early).bodies == inbox(late).bodies == [b"one"]
    world.publish("t", b"two")
    world.turn()
    assert inbox(early).bodies == [b"one", b"two"]


def test_pausing_and_withholding_do_not_undo_each_other(single: World) -> None:
    single.session.create_topic("t")
    single.session.withhold_topic("t", withheld=True)
    consumer = single.consume("t", "g", 10)
    single.publish("t", b"x")
    single.session.pause_topic("t", paused=True)
    single.session.pause_topic("t", paused=False)
    single.turn()
    assert inbox(consumer).bodies == []
    single.session.pause_topic("t", paused=True)
    single.session.withhold_topic("t", withheld=False)
    single.turn()
    assert inbox(consumer).bodies == []
    single.session.pause_topic("t", paused=False)
    single.turn()
    assert inbox(consumer).bodies == [b"x"]


def test_without_a_group_a_topic_goes_on_holding(single: World) -> None:
    single.session.create_topic("t")
    single.session.withhold_topic("t", withheld=True)
    single.publish("t", b"x")
    single.session.withhold_topic("t", withheld=False)
    single.turn()
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert inbox(consumer).bodies == [b"x"]


def test_a_process_that_dies_meanwhile_withholds_nothing_for_ever(single: World) -> None:
    single.session.create_topic("t")
    single.session.withhold_topic("t", withheld=True)
    single.session.create_group("t", "g")
    single.publish("t", b"x")
    single.turn()
    single.restart()
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert inbox(consumer).bodies == [b"x"]
    single.publish("t", b"y")
    single.turn()
    assert inbox(consumer).bodies == [b"x", b"y"]
