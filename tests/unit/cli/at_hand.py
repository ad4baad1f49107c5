"""A broker for commands that talk to nsqd's HTTP port: its real endpoints on a fake store, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from polymq.cli.main import app
from tests.unit.gateways.nsq.http_world import NsqWorld

if TYPE_CHECKING:
    import pytest
    from typer.testing import Result


class AtHand:
    """Commands go to `world`; `asked` is what they asked for, as (method, path)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.world = NsqWorld(partitions)
        self.asked: list[tuple[str, str]] = []
        self.reached: list[tuple[str, int, str]] = []
        self.closed = 0
        monkeypatch.setattr("polymq.cli.nsq_http._Connection", self._connect)
        monkeypatch.setattr("polymq.cli.manage.time.time_ns", self.world.clock.wall_ns)

    def _connect(self, host: str, port: int, secret: str) -> AtHand:
        self.reached.append((host, port, secret))
        return self

    def __call__(self, method: str, path: str) -> tuple[int, bytes]:
        self.asked.append((method, path))
        answer = self.world.ask(method, path)
        return answer.status, answer.body

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
