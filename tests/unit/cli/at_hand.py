"""A broker for commands that talk to nsqd's HTTP port: its real endpoints on a fake store, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from polymq.cli.main import app
from tests.unit.gateways.nsq.http_world import NsqWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from typer.testing import Result

    from polymq.cli.nsq_http import Stream


class AtHand:
    """Commands go to `world`; `asked` is what they asked for, as (method, path)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.world = NsqWorld(partitions)
        self.asked: list[tuple[str, str]] = []
        self.reached: list[tuple[str, int, str]] = []
        self.closed = 0
        self.refuse_after: int | None = None
        monkeypatch.setattr("polymq.cli.nsq_http._Connection", self._connect)
        monkeypatch.setattr("polymq.cli.manage.time.time_ns", self.world.clock.wall_ns)

    def _connect(self, host: str, port: int, secret: str) -> AtHand:
        self.reached.append((host, port, secret))
        return self

    def __call__(self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, bytes]] = (), /) -> tuple[int, bytes]:
        self.asked.append((method, path))
        if self.refuse_after is not None and len(self.asked) > self.refuse_after:
            return 503, b'{"message":"EXITING"}'
        answer = self.world.ask(method, path, body, headers)
        return answer.status, answer.body

    def stream(self, path: str) -> Stream:
        raise AssertionError(path)

    def close(self) -> None:
        self.closed += 1

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--nsq-http", "h:1"])

    def output(self, *arguments: str) -> str:
        """What a command writes that does what it should."""
        done = self.run(*arguments)
        assert done.exit_code == 0, (done.output, done.exception)
        return str(done.output)

    def problem(self, *arguments: str) -> str:
        """What is said about a command that cannot be."""
        done = self.run(*arguments)
        assert done.exit_code == 1, (done.output, done.exception)
        return str(done.exception)
