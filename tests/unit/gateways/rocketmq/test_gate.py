from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.core.access import STRANGER, Action
from polymq.errors import Refusal
from polymq.gateways.contract import Peer
from polymq.gateways.rocketmq.gate import ANYTHING, PUB, SUB, Account, AclGate, Rights
from polymq.protocols.rocketmq.acl import sign
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.events import Request
from tests.unit.gateways.rocketmq.group_world import Caller, GroupWorld

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Answer

SECRET = "7654321"
WORDS = "org.apache.rocketmq.acl.common.AclException: "


def nobody(_host: str) -> bool:
    return False


PLAIN = Account(
    "plain-key", SECRET, admin=False, topics=Rights({"t": PUB | SUB, "no": 0}, SUB), groups=Rights({"g": SUB, "no": 0}), white=nobody
)
ADMIN = Account("admin-key", SECRET, admin=True, topics=Rights(), groups=Rights(), white=lambda host: host == "192.0.2.1")


class Story:
    """A gate, and a client at it."""

    def __init__(self) -> None:
        self.gate = AclGate({"plain-key": PLAIN, "admin-key": ADMIN}, lambda host: host == "10.0.0.1")
        self.world = GroupWorld(principal=STRANGER)
        self.client = self.connect("192.0.2.9")

    def connect(self, host: str) -> Caller:
        caller = self.world.caller()
        caller.peer = Peer(host, 1)
        return caller

    def admit(
        self, code: int, *, key: str = "plain-key", client: Caller | None = None, body: bytes = b"", tamper: bool = False, **ext: str
    ) -> Answer | None:
        fields = dict(ext)
        if key:
            fields |= {"AccessKey": key}
            fields["Signature"] = sign(SECRET, fields, body)
        if tamper:
            body += b"x"
        who: Any = client or self.client
        return self.gate.admit(who, Request(code, 1, 0, fields, body))


def test_a_signed_request_is_done_as_who_has_signed_it() -> None:
    story = Story()
    assert story.admit(RequestCode.SEND_MESSAGE_V2, b="t", body=b"hello") is None
    session = story.client.session
    assert session.principal.name == "plain-key"
    session.ensure_topic("t")
    with pytest.raises(Refusal):
        session.ensure_topic("no")
    assert story.admit(RequestCode.UPDATE_AND_CREATE_TOPIC, key="admin-key", topic="u") is None
    assert story.client.session.principal.may_everywhere(Action.MANAGE)
    assert story.admit(RequestCode.SEND_MESSAGE, topic="t") is None
    assert story.client.session is session  # whatever it had begun goes on
    story.gate.departed(story.client)  # type: ignore[arg-type]  # as far as it needs one
    assert session not in story.world.broker.sessions


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"code": RequestCode.SEND_MESSAGE, "key": "", "topic": "t"}, "No accessKey is configured"),
        ({"code": RequestCode.SEND_MESSAGE, "key": "other-key", "topic": "t"}, "No acl config for other-key"),
        ({"code": RequestCode.SEND_MESSAGE, "tamper": True, "topic": "t"}, "Check signature failed for accessKey=plain-key"),
        ({"code": RequestCode.SEND_MESSAGE, "topic": "u"}, "No default permission for topic:u"),
        ({"code": RequestCode.SEND_BATCH_MESSAGE, "b": "no"}, "No permission for topic:no"),
        ({"code": RequestCode.SEND_MESSAGE_V2, "b": "%RETRY%h"}, "No default permission for group:h"),
        ({"code": RequestCode.SEND_MESSAGE_V2, "b": "%DLQ%h"}, "No default permission for topic:%DLQ%h"),
        ({"code": RequestCode.PULL_MESSAGE, "topic": "no", "consumerGroup": "g"}, "No permission for topic:no"),
        ({"code": RequestCode.LITE_PULL_MESSAGE, "topic": "t", "consumerGroup": "no"}, "No permission for group:no"),
        ({"code": RequestCode.PULL_MESSAGE, "topic": "t", "consumerGroup": ""}, "No default permission for group:"),
        ({"code": RequestCode.LITE_PULL_MESSAGE, "topic": "t", "consumerGroup": ""}, "No default permission for group:"),
        ({"code": RequestCode.CONSUMER_SEND_MSG_BACK, "group": "h"}, "No default permission for group:h"),
        ({"code": RequestCode.GET_CONSUMER_LIST_BY_GROUP, "consumerGroup": "h"}, "No default permission for group:h"),
        (
            {"code": RequestCode.UPDATE_AND_CREATE_TOPIC, "topic": "t"},
            "Need admin permission for request code=17, but accessKey=plain-key is not",
        ),
    ],
)
def test_refusals_have_rocketmqs_words(asked: dict[str, Any], words: str) -> None:
    story = Story()
    found = story.admit(**asked)
    assert found is not None
    assert (found.code, found.remark) == (ResponseCode.SYSTEM_ERROR, WORDS + words)
    assert story.client.session.principal is STRANGER


@pytest.mark.parametrize(
    "asked",
    [
        {"code": RequestCode.SEND_MESSAGE_V2, "b": "%RETRY%g"},
        {"code": RequestCode.SEND_MESSAGE_V2, "b": "RMQ_SYS_TRACE_TOPIC"},
        {"code": RequestCode.PULL_MESSAGE, "topic": "u", "consumerGroup": "g"},
        {"code": RequestCode.PULL_MESSAGE, "topic": "%RETRY%g", "consumerGroup": "g"},
        {"code": RequestCode.UNREGISTER_CLIENT, "consumerGroup": ""},
        {"code": RequestCode.HEART_BEAT},
        {"code": RequestCode.SEND_MESSAGE, "key": "admin-key", "topic": "no"},
    ],
)
def test_what_an_account_may_do_passes(asked: dict[str, Any]) -> None:
    assert Story().admit(**asked) is None


def test_where_a_topic_is_may_be_asked_by_everybody() -> None:
    story = Story()
    assert story.admit(RequestCode.GET_ROUTEINFO_BY_TOPIC, key="", topic="t") is None
    assert story.client.session.principal is STRANGER
    for wrong in ({"key": "other-key"}, {"tamper": True}):
        assert story.admit(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t", **wrong) is None
        assert story.client.session.principal is STRANGER
    assert story.admit(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t") is None
    assert story.client.session.principal.name == "plain-key"
    assert story.admit(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, key="") is not None


def test_white_addresses_need_no_key_or_no_signature() -> None:
    story = Story()
    friend = story.connect("10.0.0.1")
    assert story.admit(RequestCode.REGISTER_BROKER, key="", client=friend) is None
    assert friend.session.principal is ANYTHING
    friend = story.connect("192.0.2.1")
    assert story.admit(RequestCode.SEND_MESSAGE, key="admin-key", client=friend, tamper=True, topic="t") is None
    assert story.admit(RequestCode.SEND_MESSAGE, key="", client=friend, topic="t") is not None


def test_a_question_by_key_is_signed_with_or_without_its_mark() -> None:
    story = Story()
    assert story.admit(RequestCode.QUERY_MESSAGE, topic="t", key_="k", _UNIQUE_KEY_QUERY="true") is None
    fields = {"topic": "t", "AccessKey": "plain-key"}
    fields |= {"Signature": sign(SECRET, fields, b""), "_UNIQUE_KEY_QUERY": "true"}
    client: Any = story.client
    assert story.gate.admit(client, Request(RequestCode.QUERY_MESSAGE, 1, 0, fields)) is None


def test_so_many_keys_on_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.rocketmq.gate.KEYS_PER_CONNECTION_MAX", 1)
    story = Story()
    assert story.admit(RequestCode.HEART_BEAT) is None
    found = story.admit(RequestCode.HEART_BEAT, key="admin-key")
    assert found is not None
    assert found.remark == WORDS + "more than 1 access keys on one connection"
