from __future__ import annotations

import pytest

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.encode import encode_response

from .harness import Members, Talk, World

RAW = "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x017\x02MSG_TYPE\x01reply\x02"
LONG = {
    "producerGroup": "P",
    "topic": "DefaultCluster_REPLY_TOPIC",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 5,
    "flag": 3,
    "properties": RAW,
    "reconsumeTimes": 0,
    "unitMode": False,
}
SHORT = dict(zip("abcdefghijk", LONG.values(), strict=True))


class Askers(Members):
    """Knows who has which client id."""

    def __init__(self) -> None:
        super().__init__(everything=True)
        self.clients: dict[str, object] = {}

    def client_channel(self, client_id: str) -> object:
        return self.clients.get(client_id)


@pytest.fixture
def members() -> Askers:
    return Askers()


@pytest.fixture
def world(members: Askers) -> World:
    return World(members=members)


@pytest.fixture
def asker(world: World, members: Askers) -> Talk:
    talk = world.connect()
    members.clients["asker"] = talk.client
    return talk


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_comes_to_who_has_asked_and_is_confirmed(world: World, asker: Talk, code: int) -> None:
    replier = world.connect(host="192.0.2.7")
    ext: dict[str, object] = dict(SHORT if code == RequestCode.SEND_REPLY_MESSAGE_V2 else LONG)
    replier.send(replier.frame(code, ext, b"the answer"))
    assert replier.hear() == []
    (pushed,) = asker.hear()
    assert (pushed.code, pushed.body, pushed.oneway) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"the answer", False)
    said = properties.parse(pushed.ext["properties"].encode())
    assert (said["CORRELATION_ID"], int(said["PUSH_REPLY_TIME"]) > 0) == ("7", True)
    assert {"topic", "producerGroup", "defaultTopic", "bornTimestamp", "storeTimestamp", "unitMode"} <= set(pushed.ext)
    assert (pushed.ext["bornHost"], pushed.ext["flag"], pushed.ext["queueId"]) == ("192.0.2.7:40000", "3", "0")
    asker.send(encode_response(0, pushed.opaque))
    (answer,) = replier.hear()
    assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (0, "0", "0")
    asker.send(encode_response(0, pushed.opaque))
    assert replier.hear() == []


@pytest.mark.parametrize("leaves", [False, True])
def test_who_does_not_take_it_or_is_gone_is_an_error(world: World, asker: Talk, *, leaves: bool) -> None:
    replier = world.connect()
    replier.send(replier.frame(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), b"x"))
    (pushed,) = asker.hear()
    if leaves:
        asker.stream.input_ended = True
        world.pump.readable(asker.connection)
        world.turn()
    else:
        asker.send(encode_response(1, pushed.opaque))
    (answer,) = replier.hear()
    assert (answer.code, answer.remark) == (1, "push reply message to <asker> fail.")


def test_replies_that_are_for_nobody(world: World) -> None:
    replier = world.connect()
    answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), b"x")
    assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <asker> not found.")
    answer = replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, SHORT | {"i": ""}, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_replies_have_limits(world: World, asker: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    replier = world.connect()
    large = b"x" * (world.house.settings.body_size_bytes_max + 1)
    assert replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), large).code == ResponseCode.MESSAGE_ILLEGAL
    monkeypatch.setattr("polymq.gateways.rocketmq.client.ASKED_PER_CONNECTION_MAX", 1)
    replier.send(replier.frame(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), b"x"))
    assert replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), b"x").code == ResponseCode.SYSTEM_BUSY
    assert len(asker.hear()) == 1


def test_whoever_may_not_publish_may_not_reply(world: World, asker: Talk) -> None:
    only = Permission(frozenset({Action.READ}), EVERYTHING, (EVERYTHING,))
    world.house.principal = Principal("x", permissions=(only,))
    assert world.connect().ask(RequestCode.SEND_REPLY_MESSAGE_V2, dict(SHORT), b"x").code == ResponseCode.NO_PERMISSION
    assert asker.hear() == []
