"""`run`: the broker as a process, from its settings to its exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from polymq.errors import ConfigError
from polymq.server.lame_duck import LameDuck
from polymq.server.mounts import mount_all
from polymq.server.node import DESCRIPTORS_KEPT, Node, connections_max, connections_spare
from polymq.server.settings import ShellSettings
from polymq.server.shell import Shell
from polymq.server.spin import SpinSettings
from polymq.server.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.config_sections import Settings
    from polymq.server.mount import Mount
    from polymq.server.nats_settings import NatsServerSettings

    Reread = Callable[[], NatsServerSettings]

__all__ = ["run", "shell_settings"]

_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Garbage in cycles is rare here (connections that end), and what a collection looks at is only what is young: what the
# start has made is frozen. So collections may be far apart; the default is after 700 new objects.
_GC_YOUNG_OBJECTS: Final = 20_000
# A turn that gave the interpreter up for a system call waits at most this long for a worker's thread to give it back;
# the default of 5 ms would be seen in the latency of deliveries.
_SWITCH_INTERVAL_S: Final = 0.0005

log = logging.getLogger(__name__)


def run(settings: Settings, *, nats: NatsServerSettings | None = None, reread: Reread | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then keep everything and return the exit code.

    `nats`: stand in for a nats-server with these settings; its log and its process id go where they say. `reread` says what
    the settings are by now, on SIGHUP.
    Raises ConfigError when something cannot be had as configured, StoreError when the data folder cannot be used.
    """
    _open_log(nats.log_file if nats else "")
    logging.getLogger("polymq").setLevel(settings.server.log_level.upper())
    descriptors = _allow_descriptors()
    # Hardly anything that the start makes is garbage; looking through it again and again takes a tenth of the time.
    gc.disable()
    try:
        return _run(settings, nats, descriptors, reread)
    finally:
        gc.enable()


def _open_log(path: str) -> None:
    """Have the log go to a file (which may be moved away: then another one is begun), or to standard error."""
    if not path:
        logging.basicConfig(stream=sys.stderr, format=_LOG_FORMAT)
        return
    try:
        handler = WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"log_file: {path} cannot be written: {error.strerror or error}"]) from error
    logging.basicConfig(handlers=[handler], format=_LOG_FORMAT)


def _write_pid(path: str) -> None:
    """Say who we are. The file stays when we end, as with nats-server."""
    try:
        Path(path).write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        raise ConfigError([f"pid_file: {path} cannot be written: {error.strerror or error}"]) from error


def _run(settings: Settings, nats: NatsServerSettings | None, descriptors: int, reread: Reread | None) -> int:
    """Make the node, serve, and take it apart."""
    try:
        node = Node(settings, nats=nats)
    except OSError as error:
        raise ConfigError([f"server.data: {settings.server.data} cannot be used: {error.strerror or error}"]) from error
    clean = False
    try:
        if nats is not None and nats.pid_file:
            _write_pid(nats.pid_file)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(node, shell_settings(settings, descriptors=descriptors), reread))
        clean = True
    finally:
        problems = node.close(clean=clean)
    if problems:
        log.error("stopped; not everything is on the disk, and the next start looks at all of it: %s", "; ".join(problems))
        return 1
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
    return ShellSettings(
        spin=SpinSettings(spin_ns=settings.server.spin_ns), connections_max=count, connections_spare=connections_spare(count)
    )


async def _serve(node: Node, settings: ShellSettings, reread: Reread | None) -> None:
    shell = Shell(node.pump, node.poller, node.wake_up, settings)
    shell.heed_signals()
    mounts = mount_all(node, backlog=settings.backlog)
    for mount in mounts:
        shell.listen(mount.listener, mount.factory, room=mount.room)
    shell.heed(signal.SIGUSR2, _lame_duck(node, shell, mounts))
    if node.nats is not None:
        # nats-server's, which logrotate and ExecReload= send. Elsewhere they do what they always do.
        shell.heed(signal.SIGUSR1, _reopen_log)
        shell.heed(signal.SIGHUP, _reload(node, mounts, reread))
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
        if node.settings.nsq.statsd_address is not None:
            from polymq.server.nsq_parts import start_statsd

            start_statsd(node, mounts, tasks)
        await shell.run()
    finally:
        await tasks.stop()


def _lame_duck(node: Node, shell: Shell, mounts: list[Mount]) -> Callable[[], None]:
    """Say what to do when the server is to send its clients elsewhere, which only NATS' can be told."""
    for mount in mounts:
        if mount.house is not None:
            refuse = partial(shell.close, mount.listener)
            return LameDuck(mount.house, node.clock, node.pump.call_at, refuse=refuse, stop=shell.stop_soon).begin
    return lambda: log.info("SIGUSR2 sends NATS' clients elsewhere, and there is no NATS here")


def _reload(node: Node, mounts: list[Mount], reread: Reread | None) -> Callable[[], None]:
    """Say what to do when the configuration of NATS is to be read again."""
    from polymq.server.nats_mount import nats_role
    from polymq.server.nats_reload import NatsReload

    assert node.nats is not None
    house = next((mount.house for mount in mounts if mount.house is not None), None)
    if house is None:
        return lambda: log.info("SIGHUP has NATS' configuration read again, and there are no NATS clients here")

    def again() -> NatsServerSettings:
        role = nats_role(node.settings, None if reread is None else reread())
        assert role is not None
        return role.settings

    route_tls = next((mount.route_tls for mount in mounts if mount.route_tls is not None), None)
    return NatsReload(house, node.nats.settings, again, node.pump.call_at, route_tls=route_tls).begin


def _reopen_log() -> None:
    """Begin a new log file, if the one that is written to has been moved away."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, WatchedFileHandler):
            handler.reopenIfNeeded()
    log.info("SIGUSR1: the log file is opened anew")


def _allow_descriptors() -> int:
    """Take as many descriptors as this process may have, and say how many: each connection needs one, each open segment two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
