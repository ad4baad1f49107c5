"""Answers of consumers to producers who asked by a message (request-reply): handed on to who asked, and not stored.

    producer ──SEND (CORRELATION_ID, REPLY_TO_CLIENT)──► log ──► consumer
    producer ◄──PUSH_REPLY_MESSAGE_TO_CLIENT── broker ◄──SEND_REPLY_MESSAGE── consumer

The consumer is answered when the producer's client has said that it has the reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from polymq.core.access import Action
from polymq.gateways.rocketmq.answers import TOO_MANY, Answer, RequestProblem, failed
from polymq.gateways.rocketmq.sends import read_sending, region, too_large
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.sends import Sending
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS"]

_NS_PER_MS: Final = 1_000_000
_PUSH_TIME: Final = "PUSH_REPLY_TIME"


def _reply(client: RocketmqClient, request: Request) -> Answer | None:
    """Hand a reply on to the client that it is for; its own word of it is the answer."""
    sending = read_sending(request)
    house = client.house
    client.session.require(Action.PUBLISH, house.topics.core_name(sending.topic))
    now_ms = house.clock.wall_ns() // _NS_PER_MS
    raw = properties.with_property(sending.properties, _PUSH_TIME, str(now_ms))
    if len(sending.body) > house.settings.body_size_bytes_max or len(raw) > PROPERTIES_SIZE_BYTES_MAX:
        return too_large(client)
    asker = properties.get(raw, properties.REPLY_TO_CLIENT)
    if asker is None:
        return _undelivered(client, f"reply message properties[{properties.REPLY_TO_CLIENT}] is null")
    channel = house.members.client_channel(asker)
    if channel is None:
        return _undelivered(client, f"push reply message fail, channel of <{asker}> not found.")

    def then(said: Request | None) -> None:
        if said is None or said.code != ResponseCode.SUCCESS:
            client.answer(request, _undelivered(client, f"push reply message to <{asker}> fail."))
        else:
            ext = {"msgId": "0", "queueId": str(sending.queue_id), "queueOffset": "0", **region(client)}
            client.answer(request, Answer(ext=ext))

    if not cast("RocketmqClient", channel).ask(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, _fields(client, request, sending, raw, now_ms), sending.body, then
    ):
        raise RequestProblem(ResponseCode.SYSTEM_BUSY, TOO_MANY)
    return None


def _undelivered(client: RocketmqClient, reason: str) -> Answer:
    """Say that nobody has got a reply; a real broker would have stored it, and would say where as well."""
    answer = failed(reason)
    answer.ext = region(client)
    return answer


def _fields(client: RocketmqClient, request: Request, sending: Sending, raw: bytes, now_ms: int) -> dict[str, str]:
    """Say of a reply what its message would say."""
    short = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
    ext = request.ext
    return {
        "bornHost": client.peer.address,
        "storeHost": f"{client.house.facts.host or client.own_host}:{client.house.facts.port}",
        "storeTimestamp": str(now_ms),
        "producerGroup": sending.group,
        "topic": sending.topic,
        "defaultTopic": ext.get("c" if short else "defaultTopic", ""),
        "defaultTopicQueueNums": str(sending.default_queues),
        "queueId": str(sending.queue_id),
        "sysFlag": str(sending.sysflag),
        "bornTimestamp": str(sending.born_ms),
        "flag": str(sending.flag),
        "properties": raw.decode("utf-8", "replace"),
        "reconsumeTimes": str(sending.reconsume),
        "unitMode": ext.get("k" if short else "unitMode", "false"),
    }


HANDLERS: Final[dict[int, Handler]] = {RequestCode.SEND_REPLY_MESSAGE: _reply, RequestCode.SEND_REPLY_MESSAGE_V2: _reply}
