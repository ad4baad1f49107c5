"""The loop: receive, write, sync, acknowledge; for as long as it takes, whatever happens to broker and disk.

One append is under way at a time, in a thread; what comes meanwhile is the next one, so the slower the disk, the larger
the appends. Acknowledgements go out in the order of the appends, and never before the sync: a message that is dropped as
a redelivery is acknowledged behind the one that it repeats. A disk without room stops receiving, and the append that
found none is tried until there is some; what is not acknowledged stays with the broker. Any other error of the disk
ends the spooler: the next one looks at what is really there. Read next: `segments.py`, `receivers/`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random as random_module
import secrets
import time
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.clients.backoff import Backoff
from polymq.errors import LocalProtocolError, PolyMQError, StoreError, StoreFull, TransportError
from polymq.spool import folder as spool_folder
from polymq.spool.feed import make_receiver
from polymq.spool.report import Report
from polymq.spool.segments import SpoolLocked, SpoolWriter
from polymq.spool.window import IdWindow
from polymq.store.files import RealFiles
from polymq.store.volume import store_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from polymq.spool.feed import Feed
    from polymq.spool.portion import Portion, Receiver
    from polymq.spool.settings import SpoolSettings
    from polymq.store.files import Files

__all__ = ["Spooler"]

_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)
_RECONNECT_SECONDS_FIRST: Final = 0.2
_RECONNECT_SECONDS_MAX: Final = 10.0
_LOCK_POLL_SECONDS: Final = 0.1


class Spooler:
    """Fills one spool. `run` returns when `stop` was called, and raises what makes it impossible to go on."""

    def __init__(
        self,
        folder: Path,
        feed: Feed,
        settings: SpoolSettings,
        *,
        files: Callable[[Path], Files] = RealFiles,
        receiver: Callable[[Feed, IdWindow, Callable[[], int]], Receiver] = make_receiver,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._feed = feed
        self._settings = settings
        self._files = files
        self._make_receiver = receiver
        self._wall_ns = wall_ns
        self._monotonic = monotonic
        self._window = IdWindow(settings.window_count)
        self._turned_at = monotonic()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="polymq spool")
        self._writer: SpoolWriter | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._stop_asked = False
        self._preparing: asyncio.Task[None] | None = None
        self.report = Report(feed.protocol, feed.shown(), monotonic)

    def stop(self) -> None:
        """Have `run` end; from any thread. What has been received is written first, if the disk has room."""
        self._stop_asked = True
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                _log.debug("the spooler has ended already")

    def run_in_thread(self) -> None:
        """Do what `run` does, with a loop of its own: for a thread that does nothing else."""
        asyncio.run(self.run())

    async def run(self) -> None:
        """Fill the spool until stopped.

        Raises:  StoreError; LocalProtocolError, Refusal for what the broker will not have, whatever is tried.
        """
        self._loop = asyncio.get_running_loop()
        if self._stop_asked:
            self._stopping.set()
        ticking = None
        try:
            self._writer = writer = await self._opened()
            ticking = asyncio.create_task(self._tick(writer), name="spool status")
            await self._receive(writer)
            self.report.state = "stopped"
        except BaseException as error:
            self.report.failed(error)
            raise
        finally:
            if ticking is not None:
                ticking.cancel()
                await asyncio.wait([ticking])
            await self._closed()

    async def _closed(self) -> None:
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        if self._writer is not None:
            self._say(self._writer)
            await self._in_thread(self._writer.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._thread, call)

    # --- Beginning ----------------------------------------------------------------------------------------------------

    async def _opened(self) -> SpoolWriter:
        """Take the spool; a process that is about to end may hold it for a moment."""
        deadline = self._monotonic() + self._settings.lock_wait_seconds
        while True:
            writer = await self._in_thread(self._new_writer)
            try:
                await self._in_thread(writer.open)
                break
            except SpoolLocked:
                if self._monotonic() >= deadline or self._stopping.is_set():
                    raise
                await asyncio.sleep(_LOCK_POLL_SECONDS)
        self.report.is_recovered = True
        try:
            self.report.remembered = await self._in_thread(lambda: writer.fill(self._window))
        except BaseException:
            await self._in_thread(writer.close)
            raise
        return writer

    def _new_writer(self) -> SpoolWriter:
        try:
            files = self._files(self._folder)
        except OSError as error:
            raise store_error(error, f"the spool {self._folder}") from error
        return SpoolWriter(files, self._feed.protocol, self._settings, wall_ns=self._wall_ns, random_u64=lambda: secrets.randbits(64))

    # --- The loop -----------------------------------------------------------------------------------------------------

    async def _receive(self, writer: SpoolWriter) -> None:
        """Be connected, for as long as it takes."""
        backoff = Backoff(_RECONNECT_SECONDS_FIRST, _RECONNECT_SECONDS_MAX, random_module.random)
        has_been_open = False
        while not self._stopping.is_set():
            receiver = self._make_receiver(self._feed, self._window, self._wall_ns)
            try:
                self.report.state = "connecting"
                if not await self._or_stop(receiver.open()):
                    return
                self.report.state = "receiving"
                self.report.opened()
                has_been_open = True
                backoff.succeeded()
                await self._take_all(writer, receiver)
            except (StoreError, LocalProtocolError):
                raise
            except PolyMQError as error:
                if not has_been_open and not isinstance(error, TransportError):
                    raise
                seconds = backoff.next_seconds()
                self.report.troubled(error)
                _log.warning("%s: tried again in %.1f s: %s", self._feed.shown(), seconds, error)
                await self._or_stop(asyncio.sleep(seconds))
            finally:
                await receiver.close()

    async def _or_stop(self, work: object) -> bool:
        """Do something unless stopped first; says whether it was done. Raises what it raised."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return True
            return False
        finally:
            for each in (task, stop):
                if not each.done():
                    each.cancel()
                    await asyncio.wait([each])

    async def _take_all(self, writer: SpoolWriter, receiver: Receiver) -> None:
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                taking = asyncio.ensure_future(receiver.take())
                await asyncio.wait([taking, stop], return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    await asyncio.wait([taking])
                    break
                portions = taking.result()
                if portions:
                    await self._store(writer, receiver, portions)
            rest = receiver.rest()
            if rest:
                await self._store(writer, receiver, rest)
        finally:
            stop.cancel()

    async def _store(self, writer: SpoolWriter, receiver: Receiver, portions: list[Portion]) -> None:
        """Write portions until they are durable, then settle them."""
        self.report.received(portions)
        while True:
            appending = asyncio.ensure_future(self._in_thread(lambda: writer.append(portions)))
            try:
                await self._touching(appending, receiver, portions)
                break
            except StoreFull as error:
                if not self.report.is_full:
                    _log.error("the spool has no room; nothing more is received until there is some: %s", error)
                self.report.full(error)
                if self._stopping.is_set():
                    return
                pause = asyncio.ensure_future(self._or_stop(asyncio.sleep(self._settings.full_retry_seconds)))
                await self._touching(pause, receiver, portions)
        if self.report.is_full:
            _log.warning("the spool has room again")
        for portion in portions:
            portion.acknowledge()
        self.report.stored(portions, writer.end)
        if writer.wants_next and (self._preparing is None or self._preparing.done()):
            self._preparing = asyncio.create_task(self._prepare(writer), name="spool segment")

    @staticmethod
    async def _touching(work: asyncio.Future[_T], receiver: Receiver, portions: list[Portion]) -> _T:
        """Wait for something, and ask the broker for more time meanwhile."""
        while True:
            await asyncio.wait([work], timeout=receiver.touch_seconds)
            if work.done():
                return work.result()
            for portion in portions:
                portion.touch()

    async def _prepare(self, writer: SpoolWriter) -> None:
        try:
            await asyncio.to_thread(writer.prepare_next)
        except PolyMQError as error:
            _log.warning("the next segment of the spool: %s", error)

    # --- Now and then -------------------------------------------------------------------------------------------------

    async def _tick(self, writer: SpoolWriter) -> None:
        while True:
            self._say(writer)
            await asyncio.sleep(self._settings.status_interval_seconds)
            if self._monotonic() - self._turned_at >= self._settings.window_seconds:
                self._turned_at = self._monotonic()
                self._window.turn()
            try:
                await self._in_thread(lambda: writer.trim(spool_folder.committed(self._folder)))
            except PolyMQError as error:
                self.report.troubled(error)
                _log.warning("%s", error)

    def _say(self, writer: SpoolWriter) -> None:
        """Write how it is, if that is possible."""
        try:
            text = self.report.text(writer, spool_folder.committed(self._folder), self._wall_ns())
            spool_folder.write_file(self._folder / spool_folder.STATUS, text)
        except OSError as error:
            _log.debug("the status cannot be written: %s", error)
