from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.gateways.effects import SendAfter
from polymq.gateways.rocketmq.answers import Answer
from polymq.gateways.rocketmq.client import packed
from polymq.gateways.rocketmq.handlers import HANDLERS
from polymq.protocols.rocketmq.batches import BatchPart, join_batch
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.encode import encode_response
from polymq.rocketmq_limits import ANSWERS_SIZE_BYTES_PER_CALL_MAX, REQUESTS_NS_PER_TURN_MAX

from .harness import Talk, World

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def talk(world: World) -> Talk:
    return world.connect()


@pytest.mark.parametrize("binary", [False, True])
def test_what_nobody_takes_care_of_is_not_supported(talk: Talk, *, binary: bool) -> None:
    answer = talk.ask(9999, binary=binary)
    assert (answer.code, answer.remark) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported")


def test_a_bug_of_ours_is_an_error_in_words_and_the_connection_goes_on(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_client: RocketmqClient, _request: Request) -> Answer:
        raise ZeroDivisionError

    HANDLERS[7777] = fail
    try:
        answer = talk.ask(7777)
    finally:
        del HANDLERS[7777]
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "internal error")
    assert "ZeroDivisionError" in caplog.text
    assert talk.ask(9999).code == 3


def test_whoever_wants_no_answer_gets_none(talk: Talk) -> None:
    talk.send(talk.frame(9999, oneway=True), talk.frame(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}, oneway=True))
    assert talk.hear() == []
    assert not talk.closed


def test_what_wants_no_answer_counts_for_the_disk_all_the_same(talk: Talk) -> None:
    talk.put("T")
    said = {"a": "P", "b": "T", "e": 0, "f": 0, "g": 1, "h": 0, "m": "true"}
    effects: list[Effect] = []
    talk.client.feed(memoryview(talk.frame(RequestCode.SEND_BATCH_MESSAGE, said, join_batch([BatchPart(b"x")]), oneway=True)), effects)
    (effect,) = effects
    assert isinstance(effect, SendAfter)
    assert (effect.data, effect.publishes) == (b"", True)


def test_requests_that_take_long_are_spread_over_turns(world: World, talk: Talk) -> None:
    def work(_client: RocketmqClient, _request: Request) -> Answer:
        world.clock.now_ns += REQUESTS_NS_PER_TURN_MAX // 2 + 1
        return Answer()

    HANDLERS[7777] = work
    try:
        talk.stream.incoming.append(b"".join(talk.frame(7777) for _ in range(7)))
        heard = []
        for _ in range(4):
            world.pump.readable(talk.connection)
            world.pump.end_turn()
            heard.append(len(talk.hear()))
        assert heard == [2, 2, 2, 1]
    finally:
        del HANDLERS[7777]
    assert talk.ask(9999).code == 3


def test_requests_whose_answers_are_large_wait_for_room(world: World, talk: Talk) -> None:
    HANDLERS[7777] = lambda _client, _request: Answer(body=bytes(ANSWERS_SIZE_BYTES_PER_CALL_MAX // 2))
    try:
        talk.stream.room = 0
        talk.stream.incoming.append(b"".join(talk.frame(7777) for _ in range(200)))
        for _ in range(20):
            if talk.stream.incoming:
                world.pump.readable(talk.connection)
            world.turn()
        waiting = talk.connection.outbox.size_bytes
        assert ANSWERS_SIZE_BYTES_PER_CALL_MAX < waiting < 8 * ANSWERS_SIZE_BYTES_PER_CALL_MAX
        talk.stream.room = 1 << 40
        world.pump.writable(talk.connection)
        world.turn()
        assert len(talk.hear()) == 200
    finally:
        del HANDLERS[7777]


def test_nonsense_closes_the_connection_without_a_word(talk: Talk) -> None:
    talk.send(b"\xff" * 100)
    assert talk.closed
    assert talk.hear() == []


def test_frames_may_come_in_any_pieces(talk: Talk) -> None:
    frame = talk.frame(9999) + talk.frame(9998)
    talk.send(*(frame[at : at + 1] for at in range(len(frame))))
    assert [answer.opaque for answer in talk.hear()] == [1, 2]


def test_answers_of_clients_are_no_requests(talk: Talk) -> None:
    talk.send(encode_response(0, 5))
    assert talk.hear() == []
    assert not talk.closed


def test_a_connection_that_says_nothing_is_given_up(world: World, talk: Talk) -> None:
    world.wait(100)
    talk.ask(9999)
    world.wait(119)
    assert not talk.closed
    world.wait(2)
    assert talk.closed


def test_the_server_asks_from_wherever_it_is(world: World, talk: Talk) -> None:
    other = world.connect()
    other.client.send_request(40, {"consumerGroup": "G"})
    world.turn()
    (told,) = other.hear()
    assert (told.code, told.ext, told.response, told.oneway) == (40, {"consumerGroup": "G"}, False, True)

    def handler(client: RocketmqClient, _request: Request) -> Answer:
        client.send_request(40, {"consumerGroup": "mine"})
        other.client.send_request(40, {"consumerGroup": "theirs"})
        return Answer()

    HANDLERS[7778] = handler
    try:
        talk.send(talk.frame(7778))
    finally:
        del HANDLERS[7778]
    assert [frame.response for frame in talk.hear()] == [False, True]
    assert [frame.ext["consumerGroup"] for frame in other.hear()] == ["theirs"]


def test_who_is_gone_is_told_nothing(world: World, talk: Talk) -> None:
    talk.stream.input_ended = True
    world.pump.readable(talk.connection)
    assert talk.client.gone
    assert world.house.members.gone == [talk.client]
    assert not world.house.clients
    talk.client.send_request(40, {})
    world.turn()
    assert talk.hear() == []


def test_a_gate_may_refuse_every_request(world: World, talk: Talk) -> None:
    class Gate:
        def admit(self, client: RocketmqClient, request: Request) -> Answer | None:
            return None if request.ext.get("AccessKey") else Answer(ResponseCode.NO_PERMISSION, "no")

    world.house.gate = Gate()
    assert talk.ask(9999).remark == "no"
    assert talk.ask(9999, {"AccessKey": "k"}).code == 3


def test_readers_are_few(world: World, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.client.READERS_PER_CONNECTION_MAX", 2)
    talk.put("T")
    log = world.log("T")
    first = talk.client.reader("A", log)
    assert talk.client.reader("A", log) is first
    assert talk.client.reader("B", log) is not first
    talk.client.reader("C", log)
    assert talk.client.reader("A", log) is not first


def test_addresses_are_as_message_ids_hold_them(world: World) -> None:
    assert packed("192.0.2.1") == bytes([192, 0, 2, 1])
    assert len(packed("::1")) == 16
    assert packed("a.example") == b""
    assert world.connect(host="2001:db8::1").client.born_host[:4] == bytes([0x20, 1, 0xD, 0xB8])
    world.house.facts.host = "broker.example"
    assert world.connect().client.store_host == bytes([127, 0, 0, 1])
    world.house.facts.store_host = bytes([10, 0, 0, 1])
    assert world.connect().client.store_host == bytes([10, 0, 0, 1])
