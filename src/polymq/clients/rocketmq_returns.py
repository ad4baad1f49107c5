"""Messages that go back: the broker is asked to deliver one again, or, where it cannot, is sent it for its retry topic.

Source: RocketMQ 4.9.8, DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_connection import refused
from polymq.clients.rocketmq_naming import with_namespace
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.clients.rocketmq_sending import send_fields
from polymq.errors import PolyMQError
from polymq.protocols.rocketmq import properties
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.names import INNER_PRODUCER_GROUP, retry_topic

if TYPE_CHECKING:
    from polymq.clients.rocketmq_messages import RocketMQMessage
    from polymq.clients.rocketmq_positions import QueueQuestions
    from polymq.clients.rocketmq_session import Session

__all__ = ["Returns"]

_log: Final = logging.getLogger(__name__)
# The first time a message comes again after 10 s, level 3, then one level more each time.
_FIRST_LEVEL: Final = 3
_NOT_COPIED: Final = frozenset({"MIN_OFFSET", "MAX_OFFSET", properties.WAIT, properties.CLUSTER})


class Returns:
    """Sends messages of a group back. What cannot be sent back comes again here after `again_seconds`."""

    again_seconds: Final = 5.0

    def __init__(self, session: Session, questions: QueueQuestions, group: str, times_max: int) -> None:
        self._session = session
        self._questions = questions
        self._group = group
        self._times_max = times_max

    async def send_back(self, message: RocketMQMessage, delay_level: int, *, is_ordered: bool = False) -> bool:
        """Have the broker deliver a message again; returns whether it will. An ordered one has come too often: for the dead letters."""
        if not is_ordered:
            try:
                await self._ask(message, delay_level)
            except PolyMQError as error:
                _log.info("%r is sent to the retry topic: %s", message, error)
            else:
                return True
        try:
            await self._send(message, delay_level, is_ordered=is_ordered)
        except PolyMQError as error:
            _log.warning("%r cannot be sent back, and comes again in %g s: %s", message, self.again_seconds, error)
            return False
        return True

    async def _ask(self, message: RocketMQMessage, delay_level: int) -> None:
        ext = {
            "offset": str(message.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.id,
            "originTopic": with_namespace(self._session.options.namespace, message.topic),
            "unitMode": "false",
            "maxReconsumeTimes": str(self._times_max),
            "bname": message.queue.broker_name,
        }
        address = await self._questions.address(message.queue)
        answer = await self._session.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, ext, introduced=True)
        if not answer.is_success:
            raise refused(answer, "a message that goes back")

    async def _send(self, message: RocketMQMessage, delay_level: int, *, is_ordered: bool) -> None:
        """Send a copy to the group's retry topic, as the broker would have made it."""
        times = message.reconsume_times
        named = {name: value for name, value in message.properties.items() if name not in _NOT_COPIED}
        named.setdefault(properties.RETRY_TOPIC, with_namespace(self._session.options.namespace, message.topic))
        named.setdefault(properties.ORIGIN_MESSAGE_ID, message.id)
        named[properties.DELAY] = str(delay_level if delay_level > 0 else _FIRST_LEVEL + times)
        ext = send_fields(
            INNER_PRODUCER_GROUP,
            MessageQueue(retry_topic(self._group), message.queue.broker_name, 0),
            born_ms=message.born_ms or time.time_ns() // 1_000_000,
            flag=message.flag,
            raw_properties=properties.encode(named).decode(),
        )
        ext["j"] = str(times + 1)
        # When no more times are left it is for the dead letters.
        ext["l"] = str(times if is_ordered or delay_level < 0 else self._times_max)
        address = await self._questions.address(message.queue)
        answer = await self._session.ask(address, RequestCode.SEND_MESSAGE_V2, ext, message.body)
        if not answer.is_success:
            raise refused(answer, "a message that goes back")
