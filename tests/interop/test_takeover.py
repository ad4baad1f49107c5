"""What a real nsqd leaves is served by polymq as nsqd itself would serve it after a restart."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from polymq.cli.nsqd import NSQD as NSQD_PROGRAM
from polymq.cli.nsqd_options import from_flag
from polymq.cli.nsqlookupd import NSQLOOKUPD
from tests.interop.raw import Raw
from tests.interop.servers import NSQD, STOP_TIMEOUT_S, Running, answers, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from polymq.cli.nsq_flags import Program

START_TIMEOUT_S = 20.0
POLYMQ = [sys.executable, "-m", "polymq.cli"]
# nsqd syncs its disk queues at least so often; what a kill leaves is whole then.
SYNC_S = 2.6


@contextlib.contextmanager
def served(program: list[str], folder: Path, *flags: str, stop: signal.Signals = signal.SIGTERM) -> Iterator[Running]:
    """Run nsqd, or polymq in its place, under nsqd's flags."""
    tcp, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    folder.mkdir(exist_ok=True)
    command = [*program, f"-data-path={folder}", f"-tcp-address={tcp}", "--http-address", http, "-broadcast-address=127.0.0.1", *flags]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        began = time.monotonic()
        while not answers(http):
            assert process.poll() is None, f"{program} did not start: see {folder}.log"
            assert time.monotonic() - began < START_TIMEOUT_S
            time.sleep(0.02)
        yield Running("", tcp, http)
    finally:
        process.send_signal(stop)
        process.wait(STOP_TIMEOUT_S)


def publish(server: Running, topic: str, bodies: list[bytes]) -> None:
    with Raw(server.tcp) as producer:
        for at in range(0, len(bodies), 50):
            producer.publish(topic, bodies[at : at + 50])


def consumer(server: Running, topic: str, channel: str, ready: int) -> Raw:
    raw = Raw(server.tcp)
    raw.subscribe(topic, channel, ready=ready)
    return raw


def post(server: Running, path: str) -> None:
    assert server.request("POST", path)[0] == 200


def moved(server: Running, topic: str, channels: dict[str, int], *, what: str = "message_count") -> None:
    """Wait until every channel has been given so many messages."""
    began = time.monotonic()
    while any(server.channel(topic, channel)[what] < count for channel, count in channels.items()):
        assert time.monotonic() - began < START_TIMEOUT_S, server.topic(topic)
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as consumers can tell it apart from others."""

    body: bytes
    timestamp_ns: int
    attempts: int


def drain(server: Running, topic: str, channel: str) -> list[Seen]:
    """Take everything that a channel has, one at a time, so that the order is the channel's."""
    found = server.channel(topic, channel)
    assert found["in_flight_count"] == found["deferred_count"] == 0
    seen: list[Seen] = []
    with consumer(server, topic, channel, 1) as raw:
        while len(seen) < found["depth"]:
            message = raw.message()
            seen.append(Seen(message.body, message.timestamp_ns, message.attempts))
            raw.finish(message)
        server.settled(topic, channel)
    return seen


def shape(server: Running) -> dict[str, object]:
    """Topics and channels with their depths and pauses."""
    status, body = server.request("GET", "/stats?format=json")
    assert status == 200
    return {
        topic["topic_name"]: (
            topic["depth"],
            topic["paused"],
            {channel["channel_name"]: (channel["depth"], channel["paused"]) for channel in topic["channels"] or ()},
        )
        for topic in json.loads(body)["topics"]
    }


def fill(server: Running) -> None:
    """Leave everything in a data folder that there can be."""
    for path in (
        "/topic/create?topic=work",
        "/topic/create?topic=one",
        "/topic/create?topic=stopped",
        "/topic/create?topic=gone%23ephemeral",
        "/channel/create?topic=work&channel=slow",
        "/channel/create?topic=work&channel=half",
        "/channel/create?topic=work&channel=halted",
        "/channel/create?topic=one&channel=only",
        "/topic/create?topic=lone",
        "/channel/create?topic=stopped&channel=c",
        "/channel/create?topic=gone%23ephemeral&channel=c",
        "/channel/pause?topic=work&channel=halted",
    ):
        post(server, path)
    bodies = [b"%d" % number + b"." * (number % 700) for number in range(400)]
    post(server, "/topic/pause?topic=stopped")
    for topic in ("work", "one", "lone", "stopped", "gone#ephemeral"):
        publish(server, topic, bodies)
    moved(server, "work", dict.fromkeys(("slow", "half", "halted"), 400))
    moved(server, "one", {"only": 400})
    with Raw(server.tcp) as producer:
        for number in range(5):
            producer.ok(b"DPUB one 3600000\n" + (9).to_bytes(4, "big") + b"deferred%d" % number)
    moved(server, "one", {"only": 405})


@contextlib.contextmanager
def used(server: Running) -> Iterator[None]:
    """Finish some, give some back, keep some: the connections stay open until the server has stopped."""
    with consumer(server, "work", "half", 300) as half, consumer(server, "one", "only", 40) as only:
        for at, message in enumerate([half.message() for _ in range(300)]):
            if at % 2:
                half.finish(message)
            elif not at:
                half.send(b"RDY 0\n")
        messages = [only.message() for _ in range(40)]
        only.send(b"RDY 0\n")
        for message in messages[:20]:
            only.send(b"REQ " + message.id + (b" 0\n" if message.body[0] % 2 else b" 3600000\n"))
        only.finish(messages[20])
        began = time.monotonic()
        while server.channel("one", "only")["in_flight_count"] != 19 or server.channel("work", "half")["in_flight_count"] != 150:
            assert time.monotonic() - began < START_TIMEOUT_S
            time.sleep(0.02)
        yield


@dataclass(frozen=True, slots=True)
class Both:
    """The same folder, served by nsqd itself and by polymq: what each had, and what consumers got."""

    nsqd: dict[str, object]
    polymq: dict[str, object]
    nsqd_seen: dict[str, list[Seen]]
    polymq_seen: dict[str, list[Seen]]
    said: str


def compare(folder: Path, tmp_path: Path, queues: list[str], *, status: int = 0) -> Both:
    """Have both serve what lies in a folder."""
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = subprocess.run(
        [*POLYMQ, "import", "nsqd", str(folder), "--data", str(tmp_path / "taken")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    shapes: list[dict[str, object]] = []
    seen: list[dict[str, list[Seen]]] = []
    for program, data in (([str(NSQD)], again), ([*POLYMQ, "nsqd"], tmp_path / "taken")):
        with served(program, data, "-mem-queue-size=0", "-max-bytes-per-file=20000") as server:
            time.sleep(0.3)
            shapes.append(shape(server))
            for path in ("/channel/unpause?topic=work&channel=halted", "/topic/unpause?topic=stopped"):
                server.request("POST", path)
            if "lone:first" in queues:
                post(server, "/channel/create?topic=lone&channel=first")
                moved(server, "lone", {"first": 400}, what="depth")
                moved(server, "stopped", {"c": 400}, what="depth")
            seen.append({queue: drain(server, *queue.split(":")) for queue in queues})
    return Both(shapes[0], shapes[1], seen[0], seen[1], done.stderr)


@pytest.mark.parametrize("memory", [0, 1, 10_000])
def test_everything_that_nsqd_would_deliver_is_delivered(tmp_path: Path, memory: int) -> None:
    folder = tmp_path / "nsq"
    flags = (f"-mem-queue-size={memory}", "-max-bytes-per-file=20000")
    with contextlib.ExitStack() as connections, served([str(NSQD)], folder, *flags) as server:
        fill(server)
        connections.enter_context(used(server))
    assert len(list(folder.glob("one:only.diskqueue.*.dat"))) > 5, "the files have rolled"
    assert list(folder.glob("gone#ephemeral:c.*")), "files of an ephemeral topic, which nsqd itself ignores"
    queues = ["work:slow", "work:half", "work:halted", "one:only", "lone:first", "stopped:c"]
    both = compare(folder, tmp_path, queues)
    assert both.polymq == both.nsqd
    assert set(both.nsqd) == {"work", "one", "lone", "stopped"}
    for queue in queues:
        ours, theirs = both.polymq_seen[queue], both.nsqd_seen[queue]
        assert sorted(ours, key=repr) == sorted(theirs, key=repr), queue
    assert both.polymq_seen["one:only"] == both.nsqd_seen["one:only"], "the order is the queue's"
    assert both.polymq_seen["lone:first"] == both.nsqd_seen["lone:first"]
    assert sum(each.attempts > 1 for each in both.polymq_seen["one:only"]) == 39
    assert sum(each.body.startswith(b"deferred") for each in both.polymq_seen["one:only"]) == 5


@pytest.mark.parametrize("synced", [True, False])
def test_what_a_killed_nsqd_has_left_is_not_lost(tmp_path: Path, synced: bool) -> None:
    folder = tmp_path / "nsq"
    bodies = [b"%d" % number for number in range(300)]
    with served([str(NSQD)], folder, "-mem-queue-size=0", stop=signal.SIGKILL) as server:
        post(server, "/topic/create?topic=t")
        post(server, "/channel/create?topic=t&channel=c")
        publish(server, "t", bodies)
        moved(server, "t", {"c": 300})
        if synced:
            time.sleep(SYNC_S)
    both = compare(folder, tmp_path, ["t:c"])
    theirs = {each.body for each in both.nsqd_seen["t:c"]}
    ours = [each.body for each in both.polymq_seen["t:c"]]
    assert ours == bodies, "all, in order, each once"
    assert len(theirs) == (300 if synced else 0), "nsqd forgets a queue without a meta file"
    if not synced:
        assert "meta.dat is missing" in both.said


def test_a_truncated_file_costs_its_last_message(tmp_path: Path) -> None:
    folder = tmp_path / "nsq"
    with served([str(NSQD)], folder, "-mem-queue-size=0") as server:
        post(server, "/topic/create?topic=t")
        post(server, "/channel/create?topic=t&channel=c")
        publish(server, "t", [b"%03d" % number for number in range(100)])
        moved(server, "t", {"c": 100})
    (data,) = folder.glob("t:c.diskqueue.000000.dat")
    os.truncate(data, data.stat().st_size - 1)
    done = subprocess.run(
        [*POLYMQ, "import", "nsqd", str(folder), "--data", str(tmp_path / "taken")], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"{data} at byte {99 * 33}: no sound record begins here" in done.stderr
    with served([*POLYMQ, "nsqd"], tmp_path / "taken") as server:
        assert [each.body for each in drain(server, "t", "c")] == [b"%03d" % number for number in range(99)]


def test_a_running_nsqd_keeps_its_folder(tmp_path: Path) -> None:
    with served([str(NSQD)], tmp_path / "nsq"):
        done = subprocess.run([*POLYMQ, "import", "nsqd", str(tmp_path / "nsq"), "--dry-run"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stop that nsqd first" in done.stderr


@pytest.mark.parametrize("program", [NSQD_PROGRAM, NSQLOOKUPD], ids=lambda program: program.name)
def test_every_flag_of_the_real_program_is_known_with_its_default(program: Program) -> None:
    said = subprocess.run([str(NSQD.with_name(program.name)), "-help"], capture_output=True, text=True, check=False, timeout=20).stderr
    flags = {match[1]: match[2] for match in re.finditer(r"^  -([a-z0-9-]+)(?: \w+)?\n(.*)$", said, re.MULTILINE)}
    assert set(flags) == {option.flag for option in program.options if not option.unreleased}
    for flag, text in flags.items():
        found = re.findall(r'\(default "?([^()"]*)"?\)', text)
        option = program.by_flag()[flag]
        if found and flag not in ("node-id", "broadcast-address"):
            assert from_flag(option, option.default) == from_flag(option, found[-1].partition(",")[0]), flag


def test_the_real_nsqd_finds_polymq_in_place_of_nsqlookupd(tmp_path: Path) -> None:
    tcp, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    with (tmp_path / "lookup.log").open("wb") as log:
        lookup = subprocess.Popen(
            [*POLYMQ, "nsqlookupd", "-tcp-address", tcp, f"--http-address={http}"], stdout=log, stderr=log, cwd=tmp_path
        )
    try:
        began = time.monotonic()
        while not answers(http):
            assert lookup.poll() is None, (tmp_path / "lookup.log").read_text()
            assert time.monotonic() - began < START_TIMEOUT_S
            time.sleep(0.02)
        directory = Running("", tcp, http)
        assert json.loads(directory.request("GET", "/nodes")[1]) == {"producers": []}, "it is no node itself"
        with served([str(NSQD)], tmp_path / "nsq", f"-lookupd-tcp-address={tcp}") as server:
            post(server, "/topic/create?topic=t")
            while directory.request("GET", "/lookup?topic=t")[0] != 200:
                assert time.monotonic() - began < START_TIMEOUT_S
                time.sleep(0.02)
            (producer,) = json.loads(directory.request("GET", "/lookup?topic=t")[1])["producers"]
            assert f"{producer['broadcast_address']}:{producer['tcp_port']}" == server.tcp
    finally:
        lookup.terminate()
        assert lookup.wait(STOP_TIMEOUT_S) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lookup.log", "nsq", "nsq.log"], "it keeps nothing"


def test_nsqds_own_example_file_starts_polymq(tmp_path: Path) -> None:
    """The settings of contrib/nsqd.cfg.example (NSQ 1.3.0) that need no other server, and its odd spellings."""
    (tmp_path / "nsqd.cfg").write_text(
        'log_level = "info"\n# id = 5150\nmem_queue_size = 10000\nmax_bytes_per_file = 104857600\nsync_every = 2500\nsync_timeout = "2s"\n'
        'msg_timeout = "60s"\nmax_msg_timeout = "15m"\nmax_msg_size = 1024768\nmax_req_timeout = "1h"\nmax_body_size = 5123840\n'
        'max_heartbeat_interval = "60s"\nmax_rdy_count = 2500\nmax_output_buffer_size = 65536\nmax_output_buffer_timeout = "1s"\n'
        'statsd_prefix = "nsq.%s"\nstatsd_interval = "60s"\nstatsd_mem_stats = true\ntls_cert = ""\ntls_key = ""\ntls_required = false\n'
        'tls_min_version = ""\ndeflate = true\nmax_deflate_level = 6\nsnappy = true\n'
    )
    for program, folder in (([str(NSQD)], tmp_path / "nsq"), ([*POLYMQ, "nsqd"], tmp_path / "taken")):
        with served(program, folder, f"-config={tmp_path / 'nsqd.cfg'}", "-max-rdy-count", "7") as server, Raw(server.tcp) as raw:
            settings = json.loads(raw.settings)
            assert (settings["max_rdy_count"], settings["max_msg_timeout"]) == (7, 900_000)
