"""The fixtures that we ship: pytest runs tests of somebody else's, as they would be run there."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from polymq import testing
from polymq.clients.nsq import NsqConsumer, NsqProducer
from polymq.errors import LocalProtocolError, StoreFailed
from polymq.testing.server import PolymqServer
from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "TESTING_YOUR_CLIENT.md"


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("POLYMQ_NSQ_MSG_TIMEOUT", "not a time")  # of the developer's, and none of the test's
    return pytester.runpytest_subprocess("-p", "polymq.testing.pytest_plugin", "--strict-markers", "-W", "error", *options)


def test_every_listener_is_there_and_it_comes_back_after_a_kill(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import socket, urllib.request

        def connects(address):
            host, _, port = address.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=5):
                return True

        def test_it(polymq_server):
            addresses = [getattr(polymq_server, name) for name in ("nsq", "nats", "rocketmq", "phpmq", "http")]
            assert len(set(addresses)) == 5 and all(map(connects, addresses))
            assert polymq_server.data.is_dir() and polymq_server.is_running
            with urllib.request.urlopen(f"http://{polymq_server.http}/metrics") as answer:
                assert answer.status == 200
            polymq_server.kill()
            assert not polymq_server.is_running
            polymq_server.start()
            assert all(map(connects, addresses))
            polymq_server.restart()
            assert all(map(connects, addresses))

        def test_nobody_stops_it_twice(polymq_server):
            polymq_server.stop()

        def test_one_for_all(polymq_session_server, polymq_server):
            assert polymq_session_server.nsq != polymq_server.nsq
            test_one_for_all.nsq = polymq_session_server.nsq

        def test_one_for_all_again(polymq_session_server):
            assert polymq_session_server.nsq == test_one_for_all.nsq and connects(polymq_session_server.nsq)
        """
    run(pytester, monkeypatch, text).assert_outcomes(passed=4)


def test_the_marker_sets_what_it_says(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import pytest

        pytestmark = pytest.mark.polymq(set={"server.log_level": "debug", "phpmq.tcp": "off"})

        @pytest.mark.polymq(set={"server.log_level": "info"})
        def test_it(polymq_server):
            assert polymq_server.phpmq == "off"
            assert "serving" in polymq_server.log()

        @pytest.mark.polymq(set={"nsq.no_such": 1})
        def test_not_a_setting(polymq_server):
            pass

        @pytest.mark.polymq("nsq.msg_timeout=1s")
        def test_not_the_form(polymq_server):
            pass
        """
    result = run(pytester, monkeypatch, text)
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*there is no setting 'nsq.no_such'*"])
    result.stdout.fnmatch_lines(["*is written polymq(set=*"])


def test_the_log_of_a_failed_test_is_shown(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        def test_fails(polymq_server):
            assert False

        def test_passes(polymq_server):
            pass
        """
    result = run(pytester, monkeypatch, text)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*log of polymq_server*", "*serving, data in*"])


def test_a_broker_that_dies_by_itself_is_told(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import os, signal, time

        def test_it(polymq_server):
            os.kill(polymq_server._process.pid, signal.SIGKILL)
            polymq_server._process.wait()
        """
    result = run(pytester, monkeypatch, text)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ended by itself with code -9*"])


def test_the_examples_of_the_page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    examples: Sequence[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run(pytester, monkeypatch, "\n\n".join(examples)).assert_outcomes(passed=3)


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    async def publish() -> None:
        async with NsqProducer(server.nsq) as producer:
            await producer.publish("t", b"once")

    async def consume() -> bytes:
        async with NsqConsumer(server.nsq, "t", "c") as consumer:
            async for message in consumer:
                message.settle()
                return message.body
        raise AssertionError

    with PolymqServer(tmp_path) as server:
        asyncio.run(publish())
        server.kill()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", int(server.nsq.rpartition(":")[2])), timeout=5)
        server.start()
        with pytest.raises(LocalProtocolError):
            server.start()
        assert asyncio.run(consume()) == b"once"


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"no setting 'nsq\.nothing'"), PolymqServer(tmp_path, {"nsq.nothing": True}):
        pass
    with pytest.raises(LocalProtocolError, match="would not say"):
        PolymqServer(tmp_path, {"server.log_level": "error"})


def test_the_plugin_imports_neither_the_simulator_nor_the_broker() -> None:
    program = "import sys, polymq.testing.pytest_plugin; print(sorted(each for each in sys.modules if each.startswith('polymq.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['polymq.errors', 'polymq.testing', 'polymq.testing.pytest_plugin', 'polymq.testing.server']"


def test_what_the_package_names_is_there() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = testing.Nothing
