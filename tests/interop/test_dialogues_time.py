"""What depends on time and on the server's limits, as with nsqd 1.3.0: heartbeats, timeouts, delays, bounds of settings.

nsqd looks for what is due in rounds, up to 5 s apart on a new channel, so these cases compare what comes and in which order; that
polymq is not late is for the unit tests with their clock.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.dialogue import Case, Cases, Dialogue, Playing, Stage, Transcripts, dpub, identify, judge, mpub, played, pub
from tests.interop.servers import KINDS, Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = Cases()
case = CASES.case
# nsqd's rounds: whatever is due has come by then.
ROUND_S = 6.0
LIMITS = {
    "max_msg_timeout": "3s",
    "max_req_timeout": "2s",
    "max_rdy_count": "50",
    "max_heartbeat_interval": "5s",
    "max_output_buffer_size": "524288",
    "max_output_buffer_timeout": "1s",
    "max_msg_size": "100",
    "max_body_size": "1000",
    "max_channel_consumers": "1",
    "max_deflate_level": "3",
}


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    @contextlib.contextmanager
    def playing() -> Iterator[Playing]:
        with contextlib.ExitStack() as stack:

            def start(message_timeout_ms: int, options: dict[str, str]) -> dict[str, Running]:
                return {
                    kind: stack.enter_context(
                        running(kind, tmp_path_factory.mktemp(kind), message_timeout_ms=message_timeout_ms, options=options)
                    )
                    for kind in KINDS
                }

            yield {"": start(60_000, {}), "limits": start(1000, LIMITS)}, {}

    return played(CASES, playing)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_both_say_the_same(each: Case, transcripts: Transcripts) -> None:
    judge(each, transcripts)


# Heartbeats


@case()
def a_client_that_never_answers(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    client.hear("", quiet_s=1.6, timed=True)


@case()
def a_consumer_that_never_answers(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000) + b"SUB silent c\nRDY 1\n")
    client.hear("", quiet_s=1.6, timed=True)


@case()
def a_client_that_answers(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    for number in range(4):
        client.hear(f"round {number}", quiet_s=1.3 if not number else 0.9, timed=True)
        client.send(b"NOP\n")


@case()
def a_client_that_publishes_instead(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    for _ in range(6):
        client.send(pub("alive"))
        time.sleep(0.7)
    client.send(b"NOP\n")
    client.hear("all of it")
    line = stage.lines.pop()
    stage.note(f"heartbeats: {line.count('_heartbeat_') in (3, 4, 5)}, answers {line.count('OK')}, {line[-6:]}")


@case()
def half_a_command_is_no_sign_of_life(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    time.sleep(0.5)  # so that the deadline is not at the time of a heartbeat
    client.send(b"NOP\n")
    for _ in range(4):  # no more, or the end would be a reset
        client.send(b"NOP")
        time.sleep(0.4)
    client.hear("", quiet_s=1.6, timed=True)


@case()
def half_a_body_is_no_sign_of_life(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000))
    time.sleep(0.5)  # so that the deadline is not at the time of a heartbeat
    client.send(b"NOP\nPUB half\n" + struct.pack(">i", 100))
    for _ in range(4):  # no more, or the end would be a reset
        client.send(b"x")
        time.sleep(0.4)
    client.hear("", quiet_s=1.6, timed=True)


@case()
def no_heartbeats(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=-1))
    client.hear("", quiet_s=3.0, timed=True)
    client.say("PUB", pub("no-heartbeats"))
    client.say("SUB", b"SUB no-heartbeats c\n")


@case()
def heartbeats_of_the_last_identify(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000), identify(heartbeat_interval=4000))
    client.hear("", quiet_s=2.6, at_most_s=3.5, timed=True)


@case()
def heartbeats_switched_off_later(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000), identify(heartbeat_interval=-1))
    client.hear("", quiet_s=2.6, at_most_s=3.5, timed=True)


@case()
def heartbeats_switched_on_later(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=-1), identify(heartbeat_interval=1000))
    client.hear("", quiet_s=2.6, at_most_s=3.5, timed=True)
    client.say("SUB", b"SUB later c\n")


@case()
def heartbeats_go_on_after_cls(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000) + b"SUB cls c\nCLS\n")
    client.hear("", quiet_s=1.6, timed=True)


@case()
def heartbeats_while_messages_come(stage: Stage) -> None:
    client = stage.connect()
    client.send(identify(heartbeat_interval=1000) + b"SUB busy c\nRDY 5\n")
    other = stage.connect("other")
    for number in range(7):
        other.ok(pub("busy"))
        time.sleep(0.4)
        if number == 0:
            client.send(b"NOP\n")  # so that the deadline is not at the time of a heartbeat
    client.hear("", quiet_s=0.2)
    line = stage.lines.pop()
    stage.note(f"heartbeats {line.count('_heartbeat_')}, messages {line.count('MSG')}, closed {'[closed]' in line}")


# Timeouts and delays


def consumer(stage: Stage, topic: str, ready: int, bodies: int = 1, **fields: object) -> Dialogue:
    client = stage.connect()
    client.settings(**fields)
    client.ok(mpub(topic, *(b"%d" % number for number in range(bodies))))
    client.send(f"SUB {topic} c\nRDY {ready}\n".encode())
    client.hear("the first")
    return client


@case("limits")
def a_message_times_out(stage: Stage) -> None:
    client = consumer(stage, "timeout", 1)
    client.send(b"RDY 0\n")
    stage.wait(lambda: stage.server.channel("timeout", "c")["timeout_count"] == 1)
    client.say("FIN too late", b"FIN " + client.ids[0] + b"\n")
    client.say("TOUCH too late", b"TOUCH " + client.ids[0] + b"\n")
    client.say("REQ too late", b"REQ " + client.ids[0] + b" 0\n")
    client.say("RDY again", b"RDY 1\n")
    client.say("FIN", b"FIN " + client.ids[0] + b"\n")
    found = stage.server.channel("timeout", "c")
    stage.note(
        str([found[name] for name in ("depth", "in_flight_count", "deferred_count", "message_count", "requeue_count", "timeout_count")])
    )


@case("limits")
def a_message_times_out_for_another(stage: Stage) -> None:
    first = consumer(stage, "another", 1, msg_timeout=1000)
    first.send(b"RDY 0\n")
    first.hear("nothing more", quiet_s=ROUND_S)
    first.say("RDY 1", b"RDY 1\n")


@case("limits")
def touch_ends_at_the_greatest_timeout(stage: Stage) -> None:
    client = consumer(stage, "touch", 1)
    client.send(b"RDY 0\n")
    for _ in range(8):
        time.sleep(0.6)
        client.send(b"TOUCH " + client.ids[0] + b"\n")
    # After 3 s it cannot be kept any longer, after a round nsqd has noticed.
    time.sleep(ROUND_S)
    client.hear("TOUCH")
    stage.lines[-1] = f"touching failed in the end: {'E_TOUCH_FAILED' in stage.lines[-1]}"
    stage.note(str(stage.server.channel("touch", "c")["timeout_count"]))


@case("limits")
def touch_keeps_a_message(stage: Stage) -> None:
    client = consumer(stage, "kept", 1, msg_timeout=1500)
    for _ in range(2):
        time.sleep(0.8)
        client.send(b"TOUCH " + client.ids[0] + b"\n")
    client.say("FIN", b"FIN " + client.ids[0] + b"\n")
    stage.note(str(stage.server.channel("kept", "c")["timeout_count"]))


@case("limits")
def requeueing_with_every_delay(stage: Stage) -> None:
    client = stage.connect()
    client.ok(pub("requeue"))
    client.subscribe("requeue", "c", 1)
    for delay_ms in (0, 300, 1000, 2000, 9_999_999):
        (given,) = client.take()
        began = time.monotonic()
        client.send(b"REQ " + given + b" %d\n" % delay_ms)
        (again,) = client.take()
        waited = time.monotonic() - began
        stage.note(f"{delay_ms} ms: {again == given}, not before it is due: {waited >= min(delay_ms, 2000) / 1000 - 0.01}")
        client.send(b"REQ " + again + b" 0\n")
    client.hear("and once more")


@case("limits")
def deferring_with_every_delay(stage: Stage) -> None:
    client = stage.connect()
    client.subscribe("defer", "c", 1)
    for delay_ms in (0, 300, 1000, 1999, 2000):
        publisher = stage.connect("publisher")
        began = time.monotonic()
        publisher.ok(dpub("defer", delay_ms))
        (message,) = client.take()
        stage.note(f"{delay_ms} ms: not before it is due: {time.monotonic() - began >= delay_ms / 1000 - 0.01}")
        client.send(b"FIN " + message + b"\n")
    client.say("too long", dpub("defer", 2001))


@case("limits")
def the_order_of_what_is_deferred(stage: Stage) -> None:
    client = stage.connect()
    client.ok(dpub("order", 900, b"third"))
    client.ok(dpub("order", 600, b"second"))
    client.ok(pub("order", b"first"))
    time.sleep(1)
    client.subscribe("order", "c", 1)
    for _ in range(3):
        client.hear_one("")
        client.send(b"FIN " + client.ids[-1] + b"\n")
    client.say("CLS", b"CLS\n")


@case("limits")
def a_consumer_leaves_with_messages(stage: Stage) -> None:
    client = consumer(stage, "left", 3, 3)
    client.close()
    stage.wait(lambda: stage.server.channel("left", "c")["client_count"] == 0)
    other = stage.connect("other")
    other.say("SUB, RDY", b"SUB left c\n", b"RDY 5\n")
    time.sleep(ROUND_S)
    other.hear("after their time")
    stage.lines[-1] = f"{stage.lines[-1].count('MSG attempts=2')} again"


@case()
def pausing(stage: Stage) -> None:
    client = stage.connect()
    client.subscribe("paused", "c", 5)
    stage.ask("POST", "/channel/pause?topic=paused&channel=c")
    client.say("PUB", pub("paused", b"1"))
    stage.ask("POST", "/channel/unpause?topic=paused&channel=c")
    client.hear("unpaused")
    stage.ask("POST", "/topic/pause?topic=paused")
    client.say("PUB", pub("paused", b"2"))
    stage.note(str((stage.server.topic("paused")["depth"], stage.server.channel("paused", "c")["depth"])))
    stage.ask("POST", "/topic/unpause?topic=paused")
    client.hear("unpaused")


@case()
def emptying_and_deleting(stage: Stage) -> None:
    client = consumer(stage, "emptied", 2, 5)
    stage.ask("POST", "/channel/empty?topic=emptied&channel=c")
    client.hear("emptied")
    client.say("FIN of what is gone", b"FIN " + client.ids[0] + b"\n")
    client.say("PUB goes on", pub("emptied", b"new"))
    stage.ask("POST", "/channel/delete?topic=emptied&channel=c")
    client.hear("the channel is deleted")
    client = stage.connect()
    client.say("SUB again", b"SUB emptied c\n")
    stage.ask("POST", "/topic/delete?topic=emptied")
    client.hear("the topic is deleted")


@case()
def ready_counts(stage: Stage) -> None:
    client = consumer(stage, "ready", 3, 10)
    client.say("RDY 1, FIN 1", b"RDY 1\n", b"FIN " + client.ids[0] + b"\n")
    client.say("FIN 2", b"FIN " + client.ids[1] + b"\n")
    client.say("FIN 3", b"FIN " + client.ids[2] + b"\n")
    client.say("RDY 2", b"RDY 2\n")
    client.say("RDY 0, FIN", b"RDY 0\n", b"FIN " + client.ids[3] + b"\n")
    client.say("REQ", b"REQ " + client.ids[4] + b" 0\n")
    client.say("RDY 2500", b"RDY 2500\n")
    client.say("CLS, RDY", b"CLS\nRDY 1\n", pub("ready", b"more"))
    client.say("FIN while closing", b"FIN " + client.ids[-1] + b"\n", b"FIN " + client.ids[-1] + b"\n")


@case()
def a_topic_gives_its_backlog_to_its_first_channel(stage: Stage) -> None:
    client = stage.connect()
    client.ok(mpub("backlog", b"1", b"2"))
    client.ok(dpub("backlog", 100, b"3"))
    time.sleep(0.3)
    client.say("first", b"SUB backlog first\nRDY 5\n", quiet_s=ROUND_S)
    stage.lines[-1] = " | ".join(sorted(stage.lines[-1].split(" | ")))
    other = stage.connect("other")
    other.say("second", b"SUB backlog second\nRDY 5\n")
    client.ok(pub("backlog", b"4"))
    client.hear("first")
    other.hear("second")


@case()
def ephemeral_things_go(stage: Stage) -> None:
    client = stage.connect()
    client.subscribe("gone#ephemeral", "c#ephemeral")
    keeper = stage.connect("keeper")
    keeper.subscribe("stays", "c#ephemeral", 1)
    keeper.say("PUB", pub("stays"))
    client.close()
    keeper.close()
    time.sleep(0.5)
    stage.ask("GET", "/stats?format=json&topic=gone%23ephemeral&include_mem=false")
    stage.note(str(stage.server.topic("stays")["channels"]))


# Limits


@case("limits")
def settings_at_their_limits(stage: Stage) -> None:
    for name, values in {
        "heartbeat_interval": (999, 1000, 5000, 5001),
        "output_buffer_size": (63, 64, 524288, 524289),
        "output_buffer_timeout": (24, 25, 1000, 1001),
        "msg_timeout": (999, 1000, 3000, 3001),
        "sample_rate": (-1, 99, 100),
        "deflate_level": (0, 3, 4, 9),
    }.items():
        for value in values:
            client = stage.connect()
            client.settings(**{name: value})
            client.say("then", b"NOP\n", quiet_s=0.1)
    client = stage.connect()
    client.say(
        "three times",
        identify(output_buffer_size=524288, output_buffer_timeout=1000),
        identify(output_buffer_size=-1, output_buffer_timeout=-1),
        identify(),
    )
    client.say("too much", identify(output_buffer_timeout=1001))


@case("limits")
def sizes_at_their_limits(stage: Stage) -> None:
    for name, data in {
        "PUB 100": pub("sizes", b"x" * 100),
        "PUB 101": pub("sizes", b"x" * 101),
        "PUB 0": pub("sizes", b""),
        "DPUB 101": dpub("sizes", 1, b"x" * 101),
        "MPUB 5 x 100": mpub("sizes", *[b"x" * 100] * 5),
        "MPUB 11 x 100": mpub("sizes", *[b"x" * 100] * 11),
        "MPUB with an empty sixth": mpub("sizes", *[b"x" * 100] * 5, b""),
        "MPUB 101": mpub("sizes", b"x" * 101),
        "MPUB of many": mpub("sizes", *[b"x"] * 199),
        "MPUB of one more": mpub("sizes", *[b"x"] * 200),
        "IDENTIFY 1001": b"IDENTIFY\n" + struct.pack(">i", 1001),
        "RDY 50": b"SUB sizes c\nRDY 50\n",
        "RDY 51": b"SUB sizes2 c\nRDY 51\n",
    }.items():
        stage.connect(name).say("", data)
    stage.ask("POST", "/pub?topic=sizes", b"x" * 100)
    stage.ask("POST", "/pub?topic=sizes", b"x" * 101)
    stage.ask("POST", "/mpub?topic=sizes", b"x" * 101 + b"\nx")
    stage.ask("POST", "/mpub?topic=sizes", b"x\n" * 501)
    stage.ask("POST", "/pub?topic=sizes&defer=2000", b"x")
    stage.ask("POST", "/pub?topic=sizes&defer=2001", b"x")
    for option in LIMITS:
        stage.ask("GET", f"/config/{option}")
    info = json.loads(stage.server.request("GET", "/info")[1])
    stage.note(str({name: value for name, value in info.items() if name.startswith("max")}))


@case("limits")
def consumers_at_their_limit(stage: Stage) -> None:
    stage.connect("first").say("", b"SUB limited c\n")
    stage.connect("second").say("", b"SUB limited c\n")
    stage.connect("another channel").say("", b"SUB limited d\n")
    stage.connect("ephemeral").say("", b"SUB limited e#ephemeral\n")
    stage.connect("ephemeral too").say("", b"SUB limited e#ephemeral\n")


@case(
    differs=("a message without a timer -> MSG attempts=1 'x' | [open]", "another frame -> RESP 'CLOSE_WAIT' | [open]"),
    why="Output goes out at the end of each turn; nsqd keeps it until the buffer is full or another frame goes out.",
)
def buffering_without_a_timer(stage: Stage) -> None:
    client = stage.connect()
    client.ok(pub("unbuffered"))
    client.send(identify(output_buffer_timeout=-1))
    client.hear_one("")
    stage.lines.clear()
    client.subscribe("unbuffered", "c", 10)
    client.hear("a message without a timer", quiet_s=1.5)
    client.say("another frame", b"CLS\n")


@case()
def buffering(stage: Stage) -> None:
    """A client that asks for more than the usual delay gets it; messages that fill the buffer come at once."""
    client = stage.connect()
    client.settings(output_buffer_size=65536, output_buffer_timeout=2000)
    client.subscribe("buffered", "c", 10)
    began = time.monotonic()
    other = stage.connect("other")
    other.ok(pub("buffered", b"x" * 60000))
    client.take()
    stage.note(f"it waited: {time.monotonic() - began > 0.2}")
