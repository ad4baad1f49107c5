"""What a refusal of the core is called in NSQ. Every code has an answer for every command that can meet it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal, RefusalCode
from polymq.protocols.nsq import problems
from polymq.protocols.nsq.states import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["publish_refused", "settle_refused", "subscribe_refused"]

# The words behind E_PUB_FAILED and its like, where nsqd has words of its own; else the refusal's text stands there.
_WORDS: Final[Mapping[RefusalCode, bytes]] = {
    RefusalCode.SHUTTING_DOWN: b"exiting",
}


def publish_refused(command: Command, topic: bytes, refusal: Refusal) -> bytes:
    """Give the text of the error frame for a PUB, MPUB or DPUB that the core refuses. Always fatal."""
    code = refusal.code
    if code is RefusalCode.TOPIC_NAME_INVALID:
        return problems.wrong_topic(command, topic)
    if code is RefusalCode.FORBIDDEN:
        return problems.unauthorized(command, topic, b"")
    if code is RefusalCode.UNAUTHENTICATED:
        return problems.auth_first(command)
    if code is RefusalCode.LOGIN_EXPIRED:
        return problems.AUTH_FAILED
    return problems.publish_failed(command, _WORDS.get(code, refusal.text.encode()))


def subscribe_refused(topic: bytes, channel: bytes, refusal: Refusal) -> bytes:
    """Give the text of the error frame for a SUB that the core refuses. Always fatal."""
    code = refusal.code
    if code is RefusalCode.TOPIC_NAME_INVALID:
        return problems.wrong_topic(Command.SUB, topic)
    if code is RefusalCode.GROUP_NAME_INVALID:
        return problems.wrong_channel(channel)
    if code is RefusalCode.GROUP_FULL:
        return problems.channel_full(topic, channel, int(refusal.text))
    if code is RefusalCode.FORBIDDEN:
        return problems.unauthorized(Command.SUB, topic, channel)
    if code is RefusalCode.UNAUTHENTICATED:
        return problems.auth_first(Command.SUB)
    if code is RefusalCode.LOGIN_EXPIRED:
        return problems.AUTH_FAILED
    return b"E_SUB_FAILED SUB failed " + _WORDS.get(code, refusal.text.encode())


def settle_refused(command: Command, raw_id: bytes, code: RefusalCode) -> bytes:
    """Give the text of the error frame for a FIN, REQ or TOUCH that had no effect. Never fatal."""
    if code is RefusalCode.MESSAGE_NOT_OWNED:
        return problems.not_owned(command, raw_id)
    if code is RefusalCode.MESSAGE_NOT_LEASED:
        return problems.not_in_flight(command, raw_id)
    return problems.failed(command, raw_id, _WORDS.get(code, code.value.encode()))
