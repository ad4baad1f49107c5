"""`polymq spool`: options from everywhere, and words about a spool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.cli.spool import _until_signals, described, given, read
from polymq.errors import ConfigError, StoreFailed
from polymq.spark.spooled.options import known_options
from polymq.spool import folder
from tests.unit.spool.spools import filled


def test_options_come_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('servers = "h:4150"\nsubscribe = "a"\nwindowCount = 5\n[nsq]\nsnappy = true\n', encoding="utf-8")
    found = given(["Subscribe=b", "channel=c=d"], file)
    assert found == {"servers": "h:4150", "windowCount": "5", "nsq.snappy": "true", "Subscribe": "b", "channel": "c=d"}
    assert given([], None) == {}
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        given(["channel"], None)
    with pytest.raises(ConfigError, match="No such file"):
        given([], tmp_path / "nothing")
    for text in ("x = [1]", "x = 1.5", "x"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="--options"):
            given([], file)


def test_they_are_read_as_the_source_reads_them() -> None:
    feed, settings = read("nsq", {"servers": "h:4150", "subscribe": "a", "channel": "c", "windowCount": "5"})
    assert (feed.topics, settings.window_count) == (("a",), 5)
    with pytest.raises(ConfigError) as caught:
        read("nats", {"server": "h:4222", "subscrbe": "a"})
    assert "did you mean subscribe" in str(caught.value)
    assert len(caught.value.problems) == 2


def test_wrong_options_are_explained_before_anything_is_begun(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["spool", "run", "nsq", str(tmp_path / "spool"), "-o", "subscribe=a"])
    assert isinstance(result.exception, ConfigError)
    assert not (tmp_path / "spool").exists()
    for arguments in (["spool", "--help"], ["spool", "run", "--help"]):
        assert "channel=spark" in CliRunner().invoke(app, arguments).output


def test_the_status_of_a_spool(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["spool", "status", str(tmp_path)])
    assert "no spooler" in str(result.exception)
    filled(tmp_path, [[b"a", b"b"]])
    said = {"state": "receiving", "pid": 7, "at": time.time(), "source": "nsq t of h", "start": 0, "end": 2, "size_bytes": 100}
    said |= {"stored": 2, "rate": 0.5, "redelivered": 1, "troubles": 1, "trouble": "no room"}
    folder.write_file(tmp_path / folder.STATUS, json.dumps(said))
    folder.write_committed(tmp_path, 1)
    result = CliRunner().invoke(app, ["spool", "status", str(tmp_path)])
    assert result.exit_code == 0
    for words in ("receiving: nsq t of h", "records 0 to 2", "1 not committed", "1 redeliveries", "no room"):
        assert words in result.output
    result = CliRunner().invoke(app, ["spool", "status", str(tmp_path), "--json"])
    assert json.loads(result.output)["committed"] == 1
    said["at"] = 5.0
    folder.write_file(tmp_path / folder.STATUS, json.dumps(said))
    result = CliRunner().invoke(app, ["spool", "status", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith("gone: ")
    assert described(said | {"state": "stopped", "age": 1.0, "committed": 5}, is_there=False).startswith("stopped: ")


class FakeSpooler:
    """Ends when it is asked to, or not."""

    def __init__(self, *, obeys: bool) -> None:
        self.stops = 0
        self._stopped = asyncio.Event()
        self._obeys = obeys

    async def run(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._obeys:
            await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        await self._stopped.wait()

    def stop(self) -> None:
        self.stops += 1
        self._stopped.set()


@pytest.mark.parametrize("obeys", [True, False])
def test_the_first_signal_ends_it_in_order_and_the_second_at_once(obeys: bool) -> None:
    assert asyncio.run(_until_signals(lambda: FakeSpooler(obeys=obeys))) is obeys


def test_the_commands_of_the_document_are_commands() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "SPOOL.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:ExecStart=/opt/polymq/bin/)?polymq (spool .*)$", page, re.MULTILINE)
    assert len(lines) == 4
    read("nsq", given([pair.partition(" ")[2] for pair in re.findall(r"-o \S+", lines[0])], None))
    for line in lines:
        with (
            pytest.raises((ConfigError, StoreFailed), match=r"No such file|no spooler|^$")
            if "-o " not in line
            else contextlib.nullcontext()
        ):
            arguments = line.split()
            result = CliRunner().invoke(app, arguments if "-o " not in line else [*arguments[:2], "--help"])
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            assert result.exit_code == 0


@pytest.mark.parametrize("protocol", ["nsq", "nats", "phpmq"])
def test_every_option_is_in_the_document(protocol: str) -> None:
    page = Path(__file__).parents[3].joinpath("docs", "SPOOL.md").read_text(encoding="utf-8")
    table = page.partition("## Options")[2].partition("## In production")[0]
    words = set(re.findall(r"[\w.]+", table))
    assert [name for name in known_options(protocol) if name not in words] == []
