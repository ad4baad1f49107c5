"""Offsets: where groups are, and where queues begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.cursor_group import NOT_COMMITTED
from polymq.errors import Refusal, RefusalCode, StoreFailed
from polymq.gateways.rocketmq.answers import TOO_MANY, Answer, RequestProblem, failed, integer, refused, required, small
from polymq.limits import NAME_SIZE_BYTES_MAX, OFFSET_MAX
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.rocketmq_limits import GROUP_OFFSETS_PER_TOPIC_MAX, YOUNG_QUEUE_SIZE_BYTES_MAX
from polymq.wire.records import parse_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Log
    from polymq.core.session import Session
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.client import RocketmqClient
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS", "commit"]

_NS_PER_MS: Final = 1_000_000
_NOT_FOUND: Final = "Not found, maybe this group consumer boot first"
# A time that no message has.
_TIME_MS_MAX: Final = (1 << 62) // _NS_PER_MS


def commit(session: Session, topic: str, group: str, queue_id: int, offset: int) -> bool:
    """Note where a group goes on in a queue; -1: nowhere yet. What the queue does not have any more is where it begins. Raises Refusal.

    Gives whether there is anything to wait for. Groups without a name do not exist, nor do those of a longer one than can be. A group may go on
    where the queue has not come to, as at the real broker: whoever pulls there is told where the end is.
    """
    if not group or len(group.encode()) > NAME_SIZE_BYTES_MAX:
        return False
    log = session.log_for(topic, group, queue_id)
    kept = NOT_COMMITTED if offset < 0 else min(max(offset, log.start), OFFSET_MAX)
    if kept == NOT_COMMITTED and session.cursor(topic, group, queue_id) == NOT_COMMITTED:
        return False
    found = session.broker.catalogue.topics[session.principal.namespace, topic]
    if group not in found.groups and (len(found.groups) + 1) * len(found.partitions) > GROUP_OFFSETS_PER_TOPIC_MAX:
        raise Refusal(RefusalCode.LIMIT_REACHED, f"topic {topic} has as many groups as it can keep: {len(found.groups)}")
    session.commit_offset(topic, group, queue_id, kept, ahead=True)
    return True


def _update(client: RocketmqClient, request: Request) -> Answer:
    """Note where a group goes on. What can be of no group or of no queue is of no interest, and no error."""
    group, name = request.ext.get("consumerGroup", ""), _core_name(client, request)
    queue_id, offset = small(request, "queueId"), integer(request, "commitOffset")
    if name is None or queue_id < 0:
        return Answer()
    try:
        kept = commit(client.session, name, group, queue_id, offset)
    except Refusal as refusal:
        if refusal.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        kept = False
    return Answer(ticket=client.session.journaled() if kept else None)


def _core_name(client: RocketmqClient, request: Request) -> str | None:
    """Name the topic that a request is about; None if there can be none of that name."""
    try:
        return client.house.topics.core_name(request.ext.get("topic", ""))
    except RequestProblem:
        return None


def _query(client: RocketmqClient, request: Request) -> Answer:
    """Say what a group has committed. Without that it is 0 as long as the queue is young, as the real broker has it."""
    required(request, "topic")
    group, name = request.ext.get("consumerGroup", ""), _core_name(client, request)
    queue_id, session = small(request, "queueId"), client.session
    offset = NOT_COMMITTED
    log: Log | None = None
    try:
        if name is not None:
            log = session.log_for(name, group, queue_id)
            offset = session.cursor(name, group, queue_id) if group else NOT_COMMITTED
    except Refusal as refusal:
        if refusal.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
    if offset == NOT_COMMITTED:
        # What is not there yet is as young as can be.
        young = log is None or (log.start == 0 and log.size_bytes <= YOUNG_QUEUE_SIZE_BYTES_MAX)
        if not young or request.ext.get("setZeroIfNotFound", "").lower() == "false":
            return Answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND)
        offset = 0
    return Answer(ext={"offset": str(offset)})


def _log(client: RocketmqClient, request: Request) -> Log | None:
    """Give the queue that a request is about, to whoever may read it; None: it is not there, which is no error. Raises Refusal."""
    required(request, "topic")
    name, queue_id = _core_name(client, request), small(request, "queueId")
    try:
        return None if name is None else client.session.log(name, queue_id)
    except Refusal as refusal:
        if refusal.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        return None


def _end(client: RocketmqClient, request: Request) -> Answer:
    log = _log(client, request)
    return Answer(ext={"offset": "0" if log is None else str(log.readable)})


def _start(client: RocketmqClient, request: Request) -> Answer:
    log = _log(client, request)
    return Answer(ext={"offset": "0" if log is None else str(log.start)})


class _Question:
    """Something about a queue that may be on the disk: asked again until it is known."""

    def __init__(self, client: RocketmqClient, request: Request, ask: Callable[[], Answer | None]) -> None:
        self.client = client
        self.waits = False
        self._request = request
        self._ask = ask

    def step(self) -> bool:
        """Ask, and answer if it is known."""
        try:
            answer = self._ask()
        except StoreFailed as error:
            answer = failed(str(error))
        except Refusal as refusal:
            answer = refused(refusal)
        self.waits = answer is None
        if answer is not None:
            self.client.answer(self._request, answer)
        return answer is not None


def _ask(client: RocketmqClient, request: Request, ask: Callable[[], Answer | None]) -> Answer | None:
    if client.house.jobs.begin(_Question(client, request, ask)):
        return None
    return Answer(ResponseCode.SYSTEM_BUSY, TOO_MANY)


def _search(client: RocketmqClient, request: Request) -> Answer | None:
    """Find the first message of a time, or, if that is wanted, the last one up to it."""
    log = _log(client, request)
    time_ms = min(max(integer(request, "timestamp"), 0), _TIME_MS_MAX)
    if log is None:
        return Answer(ext={"offset": "0"})
    upper = request.ext.get("boundaryType", "").upper() == "UPPER"

    def ask() -> Answer | None:
        found = log.offset_at((time_ms + upper) * _NS_PER_MS)
        if found is None:
            return None
        if upper:
            found = max(found - 1, log.start)
        return Answer(ext={"offset": str(min(found, log.readable))})

    return _ask(client, request, ask)


def _earliest(client: RocketmqClient, request: Request) -> Answer | None:
    """Say when the first message that is still there was stored; -1 if there is none."""
    log = _log(client, request)
    if log is None:
        return Answer(ext={"timestamp": "-1"})

    def ask() -> Answer | None:
        if log.readable <= log.start:
            return Answer(ext={"timestamp": "-1"})
        view = log.batches(log.start, 1)
        if view is None:
            return None
        time_ms = parse_header(view, 0).base_time_ns // _NS_PER_MS if view else -1
        return Answer(ext={"timestamp": str(time_ms)})

    return _ask(client, request, ask)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.UPDATE_CONSUMER_OFFSET: _update,
    RequestCode.QUERY_CONSUMER_OFFSET: _query,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _search,
    RequestCode.GET_MAX_OFFSET: _end,
    RequestCode.GET_MIN_OFFSET: _start,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _earliest,
}
