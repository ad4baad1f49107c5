"""What a consumer could not deal with: it sends the message back (36), and its group gets it again later, or has given it up.

A returned message is a new one in the group's own topic: `%RETRY%group` after a delay that grows with the number of
attempts, `%DLQ%group` when there were too many. Whose it was before, and where, its properties say. It is durable before
the consumer is told so; until then the old one counts.

Source: RocketMQ 4.9.8, AbstractSendMessageProcessor.consumerSendMsgBack; properties as captured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal
from polymq.gateways.rocketmq.answers import Answer, failed, integer, loose, refused, required
from polymq.gateways.rocketmq.delays import Deferred
from polymq.gateways.rocketmq.joining import require_group
from polymq.gateways.rocketmq.queries import look_up
from polymq.protocols.rocketmq import properties as names
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.generic import foreign_properties
from polymq.protocols.rocketmq.ids import offset_message_id, parse_physical_offset
from polymq.protocols.rocketmq.names import dead_letter_topic, is_valid_group, retry_topic, to_core, to_topic
from polymq.protocols.rocketmq.stored import ORIGIN_ROCKETMQ, Extra, body_of, extra_of, make_message
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.gateways.rocketmq.queries import Found
    from polymq.protocols.rocketmq.events import Request
    from polymq.wire.batch import Message

__all__ = ["HANDLERS", "RECONSUME_TIMES_MAX", "Return", "native", "unknown_group"]

# As often as a real broker has a message consumed again where the client does not say.
RECONSUME_TIMES_MAX: Final = 16
# V3_4_9: from here on the client may say.
_VERSION_OF_MAX: Final = 121
# The first delay of a returned message: 10 s of the usual levels.
_FIRST_LEVEL: Final = 3
_QUEUES: Final = 1
_TIMES_MAX: Final = (1 << 31) - 1
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Return:
    """What a consumer asks for. `level` 0: as the number of attempts says; below: give it up."""

    group: str
    physical: int
    level: int
    times_max: int


def unknown_group(group: str) -> Answer:
    """Say that there cannot be such a group."""
    remark = f"subscription group not exist, {group[:256]} \nSee http://rocketmq.apache.org/docs/faq/ for further details."
    return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def reconsume_times_max(said: int | None, version: int) -> int:
    """Say how often a message is consumed again at most."""
    return RECONSUME_TIMES_MAX if said is None or version < _VERSION_OF_MAX else said


def native(message: Message) -> Extra:
    """Give what RocketMQ knows of a message; of one of another protocol: what can be said in RocketMQ's words."""
    extra = extra_of(message)
    if extra is not None:
        return extra
    raw, _, _ = foreign_properties(message.key, message.headers)
    return Extra(born_ms=message.time_ns // _NS_PER_MS, properties=raw)


def _send_back(client: RocketmqClient, request: Request) -> Answer | None:
    """Look for the message, perhaps on the disk, and then take it back."""
    group = required(request, "group")
    if not group:
        return _not_found(integer(request, "offset"))
    if not is_valid_group(group):
        return unknown_group(group)
    require_group(client.session, group)
    said = loose(request, "maxReconsumeTimes", RECONSUME_TIMES_MAX) if request.ext.get("maxReconsumeTimes") else None
    wanted = Return(
        group, integer(request, "offset"), loose(request, "delayLevel", 0), times_max=reconsume_times_max(said, request.version)
    )
    house = client.house
    place = parse_physical_offset(wanted.physical)
    try:
        topic = None if place is None else to_topic(house.inner.place_of(place[0])[0])
    except Refusal:
        topic = None
    if topic is None:
        return _not_found(wanted.physical)
    require_group(client.session, group, (topic,))

    def then(found: Found | None) -> None:
        try:
            answer = _not_found(wanted.physical) if found is None else take_back(client, found, wanted)
        except Refusal as refusal:
            answer = refused(refusal)
        client.answer(request, answer)

    look_up(client, wanted.physical, then, group=group)
    return None


def _not_found(physical: int) -> Answer:
    return failed(f"look message by offset failed, {physical}")


def take_back(client: RocketmqClient, found: Found, wanted: Return) -> Answer:
    """Store a message anew, for later or among the dead letters; raises Refusal."""
    house = client.house
    extra = native(found.message)
    properties = names.parse(extra.properties)
    properties.setdefault(names.RETRY_TOPIC, found.topic)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, offset_message_id(client.store_host, house.facts.port, wanted.physical))
    properties[names.WAIT] = "false"
    given_up = wanted.level < 0 or extra.reconsume_times >= wanted.times_max
    if given_up:
        properties[names.DELAY] = "0"
        topic = dead_letter_topic(wanted.group)
    else:
        level = wanted.level or _FIRST_LEVEL + extra.reconsume_times
        properties[names.DELAY] = str(max(1, min(level, house.delays.level_max())))
        topic = retry_topic(wanted.group)
    delay_ns = 0
    arranged = None if given_up else house.delays.arrange(properties, topic=topic, queue_id=0, now_ms=0)
    if isinstance(arranged, Deferred):
        delay_ns, properties = arranged.delay_ns, arranged.properties
    raw = names.encode(properties)
    if len(raw) > PROPERTIES_SIZE_BYTES_MAX:
        return Answer(ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")
    house.topics.ensure(house.inner, topic, _QUEUES)
    times = min(extra.reconsume_times + 1, _TIMES_MAX)
    extra = replace(extra, properties=raw, reconsume_times=times)
    message = make_message(body_of(found.message), extra, unpacked_size_max=house.settings.body_size_bytes_max)
    if delay_ns:
        ticket, _id = house.inner.publish_later(to_core(topic), 0, [message], origin=ORIGIN_ROCKETMQ, delay_ns=delay_ns)
    else:
        ticket = house.inner.publish_messages(to_core(topic), [message], origin=ORIGIN_ROCKETMQ)
    return Answer(ticket=ticket, publishes=True)


HANDLERS: Final[dict[int, Handler]] = {RequestCode.CONSUMER_SEND_MSG_BACK: _send_back}
