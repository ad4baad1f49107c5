"""What nats-py's own tests import as `tests.utils`: servers around each test. That file is not in the sdist, so this one is ours.

A server is whatever `nats-server` on PATH starts; it is told everything by flags and by a configuration file in nats-server's language.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import os
import ssl
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Several tests are played at once, and other programs run beside them.
START_TIMEOUT_S = 60.0
TEST_TIMEOUT_S = 90.0
# Made by whoever starts the tests: ca.pem, server.pem, client.pem.
CERTIFICATES = Path(os.environ.get("NATS_PY_CERTIFICATES", "."))
CLUSTER = "nats-py"


class Server:
    """One server, which may be stopped and started again."""

    def __init__(self, port: int, *flags: str, configuration: str = "") -> None:
        self.port = port
        self.http_port = port + 4000
        self.flags = flags
        self.configuration = configuration
        self.folder = tempfile.TemporaryDirectory()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is not None:
            return
        words = ["nats-server", "-a", "127.0.0.1", "-p", str(self.port), "-m", str(self.http_port), *self.flags]
        if self.configuration:
            file = Path(self.folder.name) / "server.conf"
            file.write_text(self.configuration, encoding="utf-8")
            words += ["-c", str(file)]
        log = (Path(self.folder.name) / "log").open("ab")
        with log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder.name)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the server did not start: " + (Path(self.folder.name) / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.02)

    def answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=2)
            connection.request("GET", "/varz")
            found = connection.getresponse().status == 200
            connection.close()
            return found
        return False

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def end(self) -> None:
        self.stop()
        self.folder.cleanup()


class _Servers(unittest.TestCase):
    """Servers around each test; `started` of them run when it begins."""

    started: int | None = None

    def make(self) -> list[Server]:
        raise NotImplementedError

    def setUp(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.server_pool = self.make()
        for each in self.server_pool:
            self.addCleanup(each.end)
        for each in self.server_pool[: self.started]:
            each.start()

    def tearDown(self) -> None:
        for each in self.server_pool:
            each.stop()
        self.loop.close()


class SingleServerTestCase(_Servers):
    def make(self) -> list[Server]:
        return [Server(4222)]


class MultiServerAuthTestCase(_Servers):
    def make(self) -> list[Server]:
        return [Server(4223, "--user", "foo", "--pass", "bar"), Server(4224, "--user", "hoge", "--pass", "fuga")]


class MultiServerAuthTokenTestCase(_Servers):
    def make(self) -> list[Server]:
        return [
            Server(4223, "--auth", "token"),
            Server(4224, "--auth", "token"),
            Server(4225, "--auth", "secret"),
        ]


class NoAuthUserServerTestCase(_Servers):
    def make(self) -> list[Server]:
        users = '{user: "foo", password: "foo"}, {user: "bar", password: "bar", permissions: {subscribe: {deny: ["foo"]}}}'
        return [Server(4555, configuration=f"authorization {{ users: [{users}] }}\nno_auth_user: foo\n")]


def server_tls(more: str = "") -> str:
    files = f'cert_file: "{CERTIFICATES}/server.pem", key_file: "{CERTIFICATES}/server.pem", ca_file: "{CERTIFICATES}/ca.pem"'
    return f"tls {{ {files}, verify: true, timeout: 5 {more} }}\n"


class _TlsServers(_Servers):
    def setUp(self) -> None:
        super().setUp()
        self.ssl_ctx = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
        self.ssl_ctx.load_cert_chain(str(CERTIFICATES / "client.pem"))


class TLSServerTestCase(_TlsServers):
    def make(self) -> list[Server]:
        return [Server(4224, configuration=server_tls())]


class TLSServerHandshakeFirstTestCase(_TlsServers):
    def make(self) -> list[Server]:
        return [Server(4224, configuration=server_tls(", handshake_first: true"))]


class MultiTLSServerAuthTestCase(_TlsServers):
    def make(self) -> list[Server]:
        return [
            Server(4223, "--user", "foo", "--pass", "bar", configuration=server_tls()),
            Server(4224, "--user", "hoge", "--pass", "fuga", configuration=server_tls()),
        ]


def members(*flags: str) -> list[Server]:
    routes = "nats://127.0.0.1:6223,nats://127.0.0.1:6224"
    return [
        Server(port, "--cluster_name", CLUSTER, "--cluster", f"nats://127.0.0.1:{port + 2000}", "--routes", routes, *flags)
        for port in (4223, 4224, 4225)
    ]


class ClusteringTestCase(_Servers):
    started = 1

    def make(self) -> list[Server]:
        return members()


class ClusteringDiscoveryAuthTestCase(_Servers):
    def make(self) -> list[Server]:
        return members("--user", "foo", "--pass", "bar")


def async_test(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def wrapper(self: _Servers) -> None:
        self.loop.run_until_complete(asyncio.wait_for(test(self), TEST_TIMEOUT_S))

    return wrapper


async_long_test = async_test
