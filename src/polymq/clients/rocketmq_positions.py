"""Where a group is in each queue, and where it keeps that: at the broker, or in a file when every member reads everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from polymq.clients.rocketmq_connection import refused
from polymq.clients.rocketmq_routes import MessageQueue
from polymq.errors import ConnectFailed, PolyMQError, RemoteProtocolError, TransportError
from polymq.protocols.rocketmq.codes import RequestCode, ResponseCode
from polymq.protocols.rocketmq.names import is_retry_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.clients.rocketmq_connection import Answer
    from polymq.clients.rocketmq_session import Session

__all__ = ["FIRST", "LAST", "BrokerPositions", "FilePositions", "Positions", "QueueQuestions", "default_folder"]

_log: Final = logging.getLogger(__name__)
_beside: Final = asyncio.to_thread  # files are slow
FIRST: Final = "first"
LAST: Final = "last"
# A file with so many queues is not one of ours.
_FILE_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_UNSAFE: Final = re.compile(r"[^\w.@#%-]")


def default_folder() -> Path:
    """Say where broadcast consumers keep their positions unless they are told."""
    return Path.home() / ".polymq" / "rocketmq_offsets"


class QueueQuestions:
    """What can be asked about one queue. Raises Refusal, TransportError, RemoteProtocolError."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def address(self, queue: MessageQueue) -> str:
        """Say where the broker of a queue is; raises ConnectFailed when no route names it."""
        route = await self._session.route(queue.topic)
        address = route.address(queue.broker_name) if route is not None else None
        address = address or self._session.masters().get(queue.broker_name)
        if address is None:
            raise ConnectFailed(f"no route to the broker {queue.broker_name} of {queue.topic}")
        return address

    async def ask(self, code: int, queue: MessageQueue, **ext: str) -> Answer:
        """Ask the broker of a queue about it, and return its answer whatever it says."""
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name, **ext}
        return await self._session.ask(await self.address(queue), code, fields)

    async def _offset(self, code: int, queue: MessageQueue, what: str, **ext: str) -> int:
        answer = await self.ask(code, queue, **ext)
        if not answer.is_success:
            raise refused(answer, f"{what} of {queue.topic}")
        return answer.number("offset")

    async def begin(self, queue: MessageQueue) -> int:
        """Ask for the first offset that is still there."""
        return await self._offset(RequestCode.GET_MIN_OFFSET, queue, "first offset")

    async def end(self, queue: MessageQueue) -> int:
        """Ask for the offset that the next message gets."""
        return await self._offset(RequestCode.GET_MAX_OFFSET, queue, "last offset")

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        """Ask for the first message that was stored at this time or later."""
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, "offset by time", timestamp=str(time_ms))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask where the group is; None when it has not begun."""
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, queue, consumerGroup=self._group)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if not answer.is_success:
            raise refused(answer, f"position in {queue.topic}")
        offset = answer.number("offset")
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        """Tell where the group is."""
        fields = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "commitOffset": str(offset),
            "bname": queue.broker_name,
        }
        address = await self.address(queue)
        if not wait:
            await self._session.tell(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            return
        answer = await self._session.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if not answer.is_success:
            raise refused(answer, f"position in {queue.topic}")

    async def start(self, queue: MessageQueue, begin_from: str | int) -> int:
        """Say where a group begins that has no position: FIRST, LAST, or a time in ms; what came back is always read whole."""
        if begin_from == FIRST or is_retry_topic(queue.topic):
            return 0
        return await (self.end(queue) if begin_from == LAST else self.at_time(queue, int(begin_from)))


class Positions(Protocol):
    """Keeps the positions of a group."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Say where the group is; None when it has not begun."""

    async def write(self, positions: Mapping[MessageQueue, int], *, wait: bool) -> dict[MessageQueue, int]:
        """Keep positions; returns those that were kept, or are on their way when this does not wait."""


class BrokerPositions:
    """Keeps positions at the brokers, for the whole group."""

    def __init__(self, questions: QueueQuestions) -> None:
        self._questions = questions

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker."""
        return await self._questions.committed(queue)

    async def write(self, positions: Mapping[MessageQueue, int], *, wait: bool) -> dict[MessageQueue, int]:
        """Tell the brokers; what fails is not kept, and told again the next time.

        A real broker loses one of two that come at once when they are the first of a group in a topic: so those that
        are waited for go one by one.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in positions:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        kept: dict[MessageQueue, int] = {}
        await asyncio.gather(*(self._write_to_one(queues, positions, kept, wait=wait) for queues in by_broker.values()))
        return kept

    async def _write_to_one(
        self, queues: list[MessageQueue], positions: Mapping[MessageQueue, int], kept: dict[MessageQueue, int], *, wait: bool
    ) -> None:
        for queue in queues:
            try:
                await self._questions.commit(queue, positions[queue], wait=wait)
            except TransportError as error:
                _log.info("positions at %s: %s", queue.broker_name, error)
                return
            except PolyMQError as error:
                _log.warning("position in %s queue %d: %s", queue.topic, queue.queue_id, error)
            else:
                kept[queue] = positions[queue]


class FilePositions:
    """Keeps positions in one file per client and group, which is replaced as a whole; no two processes may share it."""

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        self._path = folder / _UNSAFE.sub("_", client_id) / _UNSAFE.sub("_", group) / "offsets.json"
        self._known: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int | None:
        """Look into the file; raises ConnectFailed when it cannot be read, RemoteProtocolError when it is none of ours."""
        if self._known is None:
            self._known = await _beside(self._load)
        return self._known.get(queue)

    async def write(self, positions: Mapping[MessageQueue, int], *, wait: bool) -> dict[MessageQueue, int]:
        """Write the file anew."""
        if self._known is None:
            self._known = await _beside(self._load)
        if positions:
            self._known.update(positions)
            rows = [[queue.topic, queue.broker_name, queue.queue_id, offset] for queue, offset in self._known.items()]
            await _beside(self._store, json.dumps({"offsets": rows}))
        return dict(positions)

    def _load(self) -> dict[MessageQueue, int]:
        try:
            if self._path.stat().st_size > _FILE_SIZE_BYTES_MAX:
                raise RemoteProtocolError(f"{self._path} is too large for a file of positions")
            rows = json.loads(self._path.read_bytes())["offsets"]
            return {MessageQueue(str(topic), str(broker), int(number)): int(offset) for topic, broker, number, offset in rows}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConnectFailed(f"{self._path}: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RemoteProtocolError(f"{self._path} is no file of positions: {error!r}") from error

    def _store(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix="offsets")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise ConnectFailed(f"{self._path}: {error}") from error
