"""What goes wrong during one life, and when: drawn at its start, struck when its time comes."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from polymq.testing.clients import NEVER_NS
from polymq.testing.disk import DiskFault
from polymq.testing.durability import JOURNAL
from polymq.testing.network import FakeStream
from polymq.testing.promises import PromiseBrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.errors import StoreError
    from polymq.testing.durability import Place
    from polymq.testing.world import World

__all__ = ["Faults"]

_ROOM_BYTES: Final = (0, 5_000, 100_000)
_UNLIMITED_BYTES: Final = 1 << 40
_MOMENTS: Final = 30  # at which a percentage is drawn in one life
_STALL_NS_MAX: Final = 1_500_000_000


class Faults:
    """The agenda of misfortune."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self.struck_places: list[str] = []  # in this start of the broker
        self._unsynced: list[tuple[int, Place]] = []  # when a sync of what failed in this life

    @property
    def wakes_at_ns(self) -> int:
        """When the next one strikes."""
        return self._agenda[0][0] if self._agenda else NEVER_NS

    def plan(self, lasts_ns: int) -> None:
        """Draw what goes wrong in a life of that length."""
        options, random = self._world.options, self._world.random

        def some(percent: int, fault: Callable[[], None], moments: int = 1) -> None:
            for _ in range(moments):
                if percent and random.randrange(100) < percent:
                    at_ns = self._world.clock.monotonic_ns() + random.randrange(lasts_ns)
                    heapq.heappush(self._agenda, (at_ns, random.getrandbits(60), fault))

        some(options.failed_sync_percent, lambda: self._fail("sync"))
        some(options.failed_write_percent, lambda: self._fail("write"))
        some(options.full_disk_percent, self._fill_disk)
        some(options.evict_percent, self._evict, _MOMENTS)
        some(options.cut_percent, self._cut, _MOMENTS)
        some(50 if options.wall_step_ns_max else 0, self._step_wall)

    def clear(self) -> None:
        """Let nothing more go wrong."""
        self._agenda.clear()
        self.struck_places.clear()
        self._unsynced.clear()
        self._world.files.faults.clear()
        self._world.files.capacity_bytes = _UNLIMITED_BYTES

    def strike(self) -> None:
        """Do what is due."""
        now_ns = self._world.clock.monotonic_ns()
        while self.wakes_at_ns <= now_ns:
            heapq.heappop(self._agenda)[2]()

    def plan_start(self) -> None:
        """Draw what goes wrong while the broker starts."""
        world = self._world
        self.struck_places.clear()
        if not world.options.failed_start_percent or world.random.randrange(100) >= world.options.failed_start_percent:
            return
        if world.random.random() < 0.3:
            world.files.capacity_bytes = world.files.used_bytes + world.random.choice(_ROOM_BYTES)
            world.trace("the disk is full")
            self.struck_places.append("room on the disk")
        else:
            kind, path = world.random.choice(("sync", "write", "sync_folder")), world.random.choice(("journal", "partitions/", ""))
            world.trace("the next %s of %s will fail", kind, path or "anything")
            world.files.faults.append(DiskFault(kind, path=path, skip=world.random.randrange(3)))

    def excuse_start(self, error: StoreError) -> None:
        """The broker did not start: raises PromiseBrokenError unless a fault has struck, and the error says so."""
        if not self.struck_places:
            raise PromiseBrokenError(f"the broker does not start, and nothing is wrong with the disk: {error}") from error
        if not any(place in str(error) for place in self.struck_places) and "the data folder" not in str(error):
            raise PromiseBrokenError(f"the broker does not start for {self.struck_places}, but says: {error}") from error

    def struck(self, kind: str, path: str) -> None:
        """A disk operation failed as it was told to."""
        world = self._world
        names = path.split("/")
        self.struck_places += [names[0], path]
        place: Place | None = JOURNAL
        if names[0] == "partitions":
            place = world.place(int(names[1])) if len(names) > 1 and names[1].isdigit() else None
        elif names[0] != "journal":
            place = None
        world.trace("%s of %s fails (%s)", kind, path, place)
        if place is not None:
            alone = not place.schedule and any(plan.name == place.topic and plan.partitions == 1 for plan in world.options.all_topics)
            world.ledger.failed(place, "write" if kind == "write" else "sync", alone=alone)
            if kind != "write":
                self._unsynced.append((world.clock.monotonic_ns(), place))

    def check_health(self, problems: Sequence[str]) -> None:
        """What the broker says of its health names every sync that failed, once that was noticed."""
        world = self._world
        noticed_ns = world.clock.monotonic_ns() - world.ledger.durability.slack_ns
        for at_ns, place in self._unsynced:
            name = "the journal" if place == JOURNAL else f"partition {place.number}:"
            if at_ns < noticed_ns and world.is_there(place) and not any(name in problem for problem in problems):
                raise PromiseBrokenError(f"a sync of {name} has failed, but all that is said is {problems}")

    def _fail(self, kind: str) -> None:
        path = self._world.random.choice(("", "journal/", "partitions/", "partitions/"))
        self._world.trace("the next %s of %s will fail", kind, path or "anything")
        self._world.files.faults.append(DiskFault(kind, path=path))

    def _fill_disk(self) -> None:
        world = self._world
        room = world.random.choice(_ROOM_BYTES)
        world.trace("the disk has room for %d bytes", room)
        world.files.capacity_bytes = world.files.used_bytes + room
        again_ns = world.clock.monotonic_ns() + world.random.randrange(1_000_000_000)
        heapq.heappush(self._agenda, (again_ns, world.random.getrandbits(60), self._empty_disk))

    def _empty_disk(self) -> None:
        self._world.trace("the disk has room again")
        self._world.files.capacity_bytes = _UNLIMITED_BYTES

    def _evict(self) -> None:
        self._world.trace("the page cache is dropped")
        self._world.files.evict()

    def _cut(self) -> None:
        """Break or stall a connection of somebody."""
        world = self._world
        connected = [client for client in world.clients if client.stream is not None]
        if not connected:
            return
        client = world.random.choice(connected)
        stream = client.stream
        assert isinstance(stream, FakeStream)
        if world.random.random() < 0.5:
            world.trace("%s is cut off", client.connection.name)
            world.ledger.ended(client.connection)
            stream.reset()
        else:
            world.trace("%s is stalled", client.connection.name)
            end = world.random.choice((stream, stream.peer))
            end.stall(world.random.randrange(_STALL_NS_MAX))

    def _step_wall(self) -> None:
        limit = self._world.options.wall_step_ns_max
        by_ns = self._world.random.randrange(-limit, limit)
        self._world.trace("the wall clock is set by %.3f s", by_ns / 1e9)
        self._world.clock.step_wall(by_ns)
