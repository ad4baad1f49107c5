"""One broker, put together: data folder, core, pump, and nothing that listens yet.

What a setting means for which part is said here, once. Read next: `mounts.py` (what listens), `serve.py` (the run).
"""

from __future__ import annotations

import logging
import random
import resource
import secrets
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.core.broker import Broker
from polymq.core.settings import CoreSettings
from polymq.gateways.http.guard import Guests
from polymq.limits import CONNECTIONS_SPARE, LOOKUP_QUESTIONS_TOTAL_MAX
from polymq.server.access import asks_over_tls, make_logins
from polymq.server.crew import Crew
from polymq.server.dialer import SocketDialer
from polymq.server.folder_id import folder_id
from polymq.server.memory import memory_bytes
from polymq.server.outside import HttpOutside
from polymq.server.passwords import PasswordOutside
from polymq.server.pump import Pump
from polymq.server.shell import Poller, WakeUp
from polymq.server.statistics import register_process, register_store
from polymq.server.tls import client_context
from polymq.store.files import RealFiles
from polymq.store.settings import StoreSettings
from polymq.store.store import Store
from polymq.store.workers import ThreadWorker

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from polymq.config_sections import NsqSettings, Settings
    from polymq.server.nats_mount import NatsRole
    from polymq.server.nats_settings import NatsServerSettings

__all__ = ["DESCRIPTORS_KEPT", "Node", "SystemClock", "connections_max", "connections_spare", "core_settings", "store_settings"]

# What connections leave to everything else, unless that is more than half: the least number of open segments, two each,
# and 300 for what the worker opens, files, listeners and connections to others; and connections beyond the limit.
DESCRIPTORS_KEPT: Final = 1100 + 2 * CONNECTIONS_SPARE
# The part of the connections that there may be beyond them, and the least.
_SPARE_PARTS: Final = 16
_SPARE_MIN: Final = 4
# The part of what connections leave that may be spent on the least number of segments, in segments.
_SEGMENTS_SHARE_MAX: Final = 3 / 8
# The least where descriptors are not few; the most are some thousand maps, far below the 65,530 that a process may have.
_OPEN_SEGMENTS_MIN: Final = 400
_OPEN_SEGMENTS_MAX: Final = 4000
# What lies further back is read in the background, by copies: a third slower, but nobody waits for the disk.
_HOT_PART: Final = 1 / 16
_HOT_BYTES_MIN: Final = 256 * 1024 * 1024
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = logging.getLogger(__name__)


class SystemClock:
    """The clock port over the machine's clocks."""

    __slots__ = ("monotonic_ns", "wall_ns")

    def __init__(self) -> None:
        self.monotonic_ns = time.monotonic_ns
        self.wall_ns = time.time_ns


def connections_max(settings: Settings, *, descriptors: int) -> int:
    """Say how many connections there may be: no more than leave the store and the rest enough of the descriptors."""
    return min(settings.server.connections_max, max(descriptors - min(DESCRIPTORS_KEPT, descriptors // 2), 1))


def connections_spare(count: int) -> int:
    """Say how many more there may be for each step of a listener's `room`, where there may be `count`."""
    return max(min(CONNECTIONS_SPARE, count // _SPARE_PARTS), _SPARE_MIN)


def store_settings(settings: Settings, *, disk_bytes: int, descriptors: int, memory: int) -> StoreSettings:
    """Say what the store has to know. A sync is begun at half the promised interval: it has the other half to end.

    `memory`: bytes that the process may use. What was written last, up to a part of that, is taken to be in the page cache.

    `descriptors` is how many this process may have. Half of those that connections leave are for segments, two each,
    three quarters if that is little: topics in use beyond that cost opening and mapping a file whenever their turn comes.
    """
    left = descriptors - connections_max(settings, descriptors=descriptors)
    segments_min = min(int(left * _SEGMENTS_SHARE_MAX), _OPEN_SEGMENTS_MIN)
    return StoreSettings(
        open_segments_max=min(max(left // 4, segments_min, 1), _OPEN_SEGMENTS_MAX),
        sync_interval_ns=settings.store.sync_interval_ns // 2,
        hot_size_bytes=max(int(memory * _HOT_PART), _HOT_BYTES_MIN),
        free_bytes_min=settings.store.free_space.of(disk_bytes),
    )


def core_settings(settings: Settings, *, disk_bytes: int) -> CoreSettings:
    """Say what the core has to know."""
    return CoreSettings(
        partitions=settings.store.partitions,
        sync=settings.store.durability == "fsync",
        retention_age_ns=settings.store.retention_age_ns,
        retention_disk_share=settings.store.retention_size.of(disk_bytes) / disk_bytes,
        group_consumers_max=settings.nsq.max_channel_consumers,
        latency_quantiles=settings.nsq.e2e_processing_latency_percentiles,
        latency_window_ns=settings.nsq.e2e_processing_latency_window_time_ns,
        requeue_on_close=settings.server.on_disconnect == "requeue",
    )


class Node:
    """The parts of a running broker. Raises ConfigError; StoreError, OSError when the data folder cannot be used."""

    def __init__(self, settings: Settings, *, nats: NatsServerSettings | None = None) -> None:
        self.settings = settings
        self.logins = make_logins(settings)
        self.nats = _nats_role(settings, nats)
        if self.nats is not None and nats is None:  # else whoever has read the file has told of it
            for note in self.nats.settings.notes:
                log.warning("%s", note)
        make_tls = _client_tls(settings.nsq)
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.connections_max = connections_max(settings, descriptors=descriptors)
        self.clock = SystemClock()
        self.started_at_ns = self.clock.wall_ns()
        self.wake_up = WakeUp()
        self.poller = Poller()
        self._worker = ThreadWorker(self.wake_up)
        files = RealFiles(settings.server.data)
        disk_bytes = files.total_bytes()
        self.store = Store.open(
            files,
            self._worker,
            clock=self.clock,
            boot_id=_boot_id(),
            random_u64=lambda: secrets.randbits(64),
            settings=store_settings(
                settings,
                disk_bytes=disk_bytes,
                descriptors=descriptors,
                memory=memory_bytes(),
            ),
        )
        # Of the log's HTTP door: what it calls itself, and its port once it is open.
        self.folder_id = folder_id(settings.server.data)
        self.door_port = 0
        self.broker = Broker(
            self.store,
            self.clock,
            random.Random(),  # noqa: S311 - chooses who is served first, nothing secret
            settings=core_settings(settings, disk_bytes=disk_bytes),
            disk_bytes=disk_bytes,
        )
        self.broker.start()
        for problem in self.store.health():
            log.warning("%s", problem)
        self.pump = Pump(self.broker, self.store, self.clock, self.poller, crew=Crew())
        self.broker.live.courier = self.pump.courier
        register_process(self.broker.statistics, started_at_ns=self.started_at_ns)
        register_store(self.broker.statistics, self.store.figures, self.store.health, self.clock.monotonic_ns)
        self.dialer = SocketDialer(self.pump, self.poller, self.clock)
        ask = partial(HttpOutside, self.dialer, self.pump, self.clock, make_tls)
        self.outside = self.pump.outside = self._passwords = PasswordOutside(ask(), self.pump, self.poller, WakeUp())
        # Directories are asked for themselves, so that no authentication server can cost a new topic its channels.
        self.directories_outside = ask(questions_max=LOOKUP_QUESTIONS_TOTAL_MAX)
        self.guests: Guests | None = None
        if self.logins is not None and settings.access.http == "login":
            self.guests = Guests(self.broker, self.clock, self.logins, self.outside.ask)

    def close(self, *, clean: bool = True) -> list[str]:
        """Keep everything and say that it is complete; connections that are left are closed as they are.

        Returns why not everything is on the disk; nothing: it is.

        Not `clean`: after a bug of ours, nothing more is written, as with `kill -9`; the next start looks at everything.
        """
        self.dialer.close()
        self._passwords.close()
        if clean:
            self.pump.abandon()
            self.broker.stop()
            self.pump.end_turn()
            # What is out comes back with its attempts counted, and the next start has little to read.
            self.broker.snapshot()
            self.store.commit()
        well = self.store.close(clean=clean)
        self._worker.close()
        self.poller.close()
        self.wake_up.close()
        return [] if well else self.store.health() or ["not everything could be synced"]


def _nats_role(settings: Settings, given: NatsServerSettings | None) -> NatsRole | None:
    """Say what this node is to those who speak NATS, if it has anything to do with them. Raises ConfigError."""
    section = settings.nats
    if not (given or section.config or section.client or section.http or section.cluster):
        return None
    # Imported here, for it brings all of NATS.
    from polymq.server.nats_mount import nats_role

    return nats_role(settings, given)


def _client_tls(section: NsqSettings) -> Callable[[], ssl.SSLContext]:
    """Give how servers are asked over HTTPS. What is sure to be used, or to be wrong, is read now. Raises ConfigError."""
    make_tls = cache(partial(client_context, section))
    if section.tls_root_ca_file or any(asks_over_tls(address) for address in section.auth_http_addresses):
        make_tls()
    return make_tls


def _boot_id() -> str:
    """Tell this boot of the machine from others; without that every start counts as one after a power loss."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)
