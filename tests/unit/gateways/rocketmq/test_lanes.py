"""Requests that come again are answered as if each were the first: the same script, with what is remembered and without, gives the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.gateways.rocketmq import client as client_module
from polymq.gateways.rocketmq.client import RocketmqClient
from polymq.protocols.rocketmq.batches import BatchPart, join_batch
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import tag_hash

from .harness import Members, Talk, Told, World, bodies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.protocols.rocketmq.events import Again

BATCH = join_batch([BatchPart(b"a", b"TAGS\x01x", 3), BatchPart(b"b")])
SEND = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "h": 0, "i": "", "j": 0, "k": False, "l": 1, "m": True}
DELETE = int(RequestCode.DELETE_TOPIC_IN_BROKER)


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """All requests that were known again."""
    found: list[Again] = []
    whole = RocketmqClient._carry_out_again

    def note(self: RocketmqClient, event: Again) -> None:
        found.append(event)
        whole(self, event)

    monkeypatch.setattr(RocketmqClient, "_carry_out_again", note)
    return found


def batch(talk: Talk, body: bytes = BATCH, *, born: int = 1000, **more: object) -> Any:
    return talk.ask(RequestCode.SEND_BATCH_MESSAGE, SEND | {"g": born} | more, body)


def test_a_consumer_that_reads_on_is_known_again(again: list[Again]) -> None:
    talk = World().connect()
    for index in range(70):
        talk.put("T", b"%d" % index)
    read = [body for offset in (0, 32, 64) for body in bodies(talk.pull("T", offset))]
    assert read == [b"%d" % index for index in range(70)]
    assert [event.number for event in again] == [32, 64]
    # Another consumer, another queue, another way to say it: requests like any other.
    talk.pull("T", 0, group="H")
    talk.pull("T", 0, queue=1, flags=0)
    assert len(again) == 2


def test_many_come_in_one_piece(again: list[Again]) -> None:
    talk = World().connect()
    for index in range(50):
        talk.put("T", b"%d" % index)
    talk.pull("T", maxMsgNums=1)
    talk.send(b"".join(talk.pull_frame("T", offset, maxMsgNums=1) for offset in range(1, 50)))
    heard = talk.hear()
    assert [body for answer in heard for body in bodies(answer)] == [b"%d" % index for index in range(1, 50)]
    assert [answer.opaque for answer in heard] == sorted(answer.opaque for answer in heard)
    assert len(again) == 49


def test_one_that_waits_gets_what_comes(again: list[Again]) -> None:
    world = World()
    talk = world.connect()
    talk.put("T", b"a")
    talk.pull("T")
    assert talk.pull("T", 1) is None
    assert len(again) == 1
    talk.send(talk.frame(RequestCode.SEND_MESSAGE_V2, {**SEND, "g": 1, "m": False}, b"b"))
    pulled = next(answer for answer in talk.hear() if answer.body)
    assert bodies(pulled) == [b"b"]


def test_it_commits_on_the_way(again: list[Again]) -> None:
    talk = World().connect()
    for _ in range(3):
        talk.put("T")
    for offset in (1, 2):
        talk.pull("T", offset, flags=3, commitOffset=offset)
    assert len(again) == 1
    answer = talk.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", "topic": "T", "queueId": 0})
    assert answer.ext["offset"] == "2"


def test_a_topic_that_is_gone_is_looked_for_again(again: list[Again]) -> None:
    world = World()
    talk = world.connect()
    talk.put("T", b"old")
    talk.pull("T")
    talk.ask(DELETE, {"topic": "T"})
    assert talk.pull("T").code == ResponseCode.TOPIC_NOT_EXIST  # type: ignore[union-attr]
    talk.put("T", b"new")
    assert bodies(talk.pull("T")) == [b"new"]
    assert len(again) == 2


def test_a_subscription_that_has_changed_counts(again: list[Again]) -> None:
    members = Members()
    world = World(members=members)
    talk = world.connect()
    members.told["G", "T"] = Told(version=1)
    talk.put("T", b"a", properties="TAGS\x01A")
    talk.put("T", b"b", properties="TAGS\x01B")
    assert bodies(talk.pull("T")) == [b"a", b"b"]
    members.told["G", "T"] = Told(version=2, codes=frozenset({tag_hash("B")}))
    assert bodies(talk.pull("T")) == [b"b"]
    del members.told["G", "T"]
    assert talk.pull("T").code == ResponseCode.SUBSCRIPTION_NOT_EXIST  # type: ignore[union-attr]
    assert len(again) == 2


def test_batches_are_known_again(again: list[Again]) -> None:
    talk = World().connect()
    answers = [batch(talk, born=born) for born in (1, 22, 333)]
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "2", "4"]
    assert bodies(talk.pull("T")) == [b"a", b"b"] * 3
    assert len(again) == 2
    # What is wrong with one of them is said as of the first.
    for body, code in ((b"", 1), (BATCH[:-1], 1), (b"x" * (4 * 1024 * 1024 + 1), 13)):
        first, second = batch(World().connect(), body), batch(talk, body)
        assert (first.code, first.remark, first.ext) == (second.code, second.remark, second.ext)
        assert second.code == code
    assert len(again) == 5


def test_so_many_are_remembered(again: list[Again], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LANES_PER_CONNECTION_MAX", 2)
    talk = World().connect()
    talk.put("T")
    for group in ("A", "B", "C"):
        talk.pull("T", group=group)
    assert len(talk.client._decoder.lanes) == 1
    talk.pull("T", group="A")
    assert not again


def test_signed_requests_are_looked_at_each_by_itself(again: list[Again]) -> None:
    talk = World().connect()
    talk.client._decoder.every_request = True
    talk.put("T")
    for _ in range(3):
        assert bodies(talk.pull("T")) == [b"x"]
    assert not again


step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 1), st.sampled_from([b"", b"one", b"two" * 50])),
    st.tuples(st.just("batch"), st.integers(0, 5), st.sampled_from([BATCH, b"", BATCH[:-1]])),
    st.tuples(st.just("pull"), st.integers(-1, 6), st.sampled_from([0, 1, 2, 3, 4, 6]), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("delete")),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 5, 20])),
)


def play(script: Sequence[Any], *, remember: bool) -> list[bytes]:
    """Carry out a script; gives what was said after each step."""
    world = World()
    talk = world.connect()
    said = []
    for name, *values in script:
        if not remember:
            talk.client._decoder.lanes.clear()
        if name == "put":
            talk.send(talk.frame(RequestCode.SEND_MESSAGE_V2, SEND | {"g": 1, "m": False, "e": values[0]}, values[1]))
        elif name == "batch":
            talk.send(talk.frame(RequestCode.SEND_BATCH_MESSAGE, SEND | {"g": values[0]}, values[1]))
        elif name == "pull":
            offset, flags, commit, count = values
            talk.send(talk.pull_frame("T", offset, flags=flags, commitOffset=commit, maxMsgNums=count, subscription="*"))
        elif name == "delete":
            talk.send(talk.frame(DELETE, {"topic": "T"}))
        else:
            world.wait(values[0])
        said.append(bytes(talk.stream.outgoing))
        talk.stream.outgoing.clear()
    return said


@given(st.lists(step, max_size=25))
@settings(max_examples=200)
def test_nobody_can_tell_the_difference(script: list[Any]) -> None:
    assert play(script, remember=True) == play(script, remember=False)
