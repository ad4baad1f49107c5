"""`run`: the broker as a process, from its settings to its exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
from typing import TYPE_CHECKING, Final

import uvloop

from polymq.errors import ConfigError
from polymq.server.mounts import mount_all, start_statsd
from polymq.server.node import DESCRIPTORS_KEPT, Node, connections_max
from polymq.server.settings import ShellSettings
from polymq.server.shell import Shell
from polymq.server.spin import SpinSettings
from polymq.server.tasks import Tasks

if TYPE_CHECKING:
    from polymq.config_sections import Settings

__all__ = ["run", "shell_settings"]

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Garbage in cycles is rare here (connections that end), and what a collection looks at is only what is young: what the
# start has made is frozen. So collections may be far apart; the default is after 700 new objects.
_GC_YOUNG_OBJECTS: Final = 20_000
# A turn that gave the interpreter up for a system call waits at most this long for a worker's thread to give it back;
# the default of 5 ms would be seen in the latency of deliveries.
_SWITCH_INTERVAL_S: Final = 0.0005

log = logging.getLogger(__name__)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, then keep everything and return the exit code.

    Raises ConfigError when something cannot be had as configured, StoreError when the data folder cannot be used.
    """
    logging.basicConfig(stream=sys.stderr, format=_LOG_FORMAT)
    logging.getLogger("polymq").setLevel(settings.server.log_level.upper())
    descriptors = _allow_descriptors()
    # Hardly anything that the start makes is garbage; looking through it again and again takes a tenth of the time.
    gc.disable()
    try:
        return _run(settings, descriptors)
    finally:
        gc.enable()


def _run(settings: Settings, descriptors: int) -> int:
    """Make the node, serve, and take it apart."""
    try:
        node = Node(settings)
    except OSError as error:
        raise ConfigError([f"server.data: {settings.server.data} cannot be used: {error.strerror or error}"]) from error
    clean = False
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(node, shell_settings(settings, descriptors=descriptors)))
        clean = True
    finally:
        node.close(clean=clean)
    log.info("stopped; everything is on the disk")
    return 0


def shell_settings(settings: Settings, *, descriptors: int) -> ShellSettings:
    """Say what the shell has to know. `descriptors`: so many this process may have."""
    count, wanted = connections_max(settings, descriptors=descriptors), settings.server.connections_max
    if count < wanted:
        log.warning(
            "at most %d connections at a time, not the %d of server.connections_max: this process may open only %d files. "
            "Raise that limit (ulimit -n; LimitNOFILE= in a systemd unit) to %d or more",
            count,
            wanted,
            descriptors,
            wanted + DESCRIPTORS_KEPT,
        )
    return ShellSettings(spin=SpinSettings(spin_ns=settings.server.spin_ns), connections_max=count)


async def _serve(node: Node, settings: ShellSettings) -> None:
    shell = Shell(node.pump, node.poller, node.wake_up, settings)
    shell.heed_signals()
    mounts = mount_all(node, backlog=settings.backlog)
    for mount in mounts:
        shell.listen(mount.listener, mount.factory)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_YOUNG_OBJECTS)
    gc.enable()
    for mount in mounts:
        log.info("%s on %s", mount.what, mount.listener.address)
    log.info("serving, data in %s", node.settings.server.data)
    tasks = Tasks()
    try:
        start_statsd(node, mounts, tasks)
        await shell.run()
    finally:
        await tasks.stop()


def _allow_descriptors() -> int:
    """Take as many descriptors as this process may have, and say how many: each connection needs one, each open segment two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
