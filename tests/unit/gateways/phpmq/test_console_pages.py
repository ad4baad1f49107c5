from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.views import GroupView, PartitionView, QueuedView, TopicView
from polymq.gateways.phpmq import console_pages as pages
from polymq.phpmq_limits import LISTED_QUEUES_MAX
from polymq.wire.records import Message


def view(depth: int = 0, leased: int = 0) -> GroupView:
    return GroupView("phpmq", "work", False, False, depth, leased, 0, 0, 0, 0, 1)


def test_names_do_nothing_to_a_terminal() -> None:
    text = pages.no_queue(b"\x1b[31m\xffred\n").decode()
    assert text == "There is no queue \\x1b[31m\\xffred\\n.\r\n"


def test_what_is_left_out_is_said() -> None:
    message = QueuedView(1, is_out=False, is_deferred=False, message=Message(b"x" * (3 << 20), time_ns=10**18))
    text = pages.show(b"q", view(5), [message], 0).decode()
    assert "3.0 MiB" in text
    assert "… and 4 more" in text


def test_a_search_ends() -> None:
    visit = pages.search(b"*")
    for index in range(LISTED_QUEUES_MAX - 1):
        assert visit("t", b"q%d" % index, view(), []) is None
    text = visit("t", b"last", view(), [])
    assert text is not None
    assert b"there may be more" in text
    assert pages.search(b"x")("", None, None, []) == b"No queue is called so.\r\n"


def topic(**given: Any) -> TopicView:
    return TopicView("", "t", False, False, 0, 0, **{"message_count": 0, "message_bytes": 0, "partitions": (), "groups": (), **given})


def test_a_monitor_without_queues() -> None:
    text = pages.monitor(pages.Seen(), uptime_s=1.5, memory_bytes=5 << 40, clients=3).decode()
    assert "up 0:00:01   memory 5.0 TiB   clients 3" in text
    assert "queues 0   messages 0   size ~0 B" in text


def test_the_fullest_of_all_queues_are_shown_and_no_more() -> None:
    seen = pages.Seen()
    for number in range(1_000):
        seen.add(b"q%d" % number, view(number, 1), topic())
    text = pages.monitor(seen, uptime_s=1.5, memory_bytes=1, clients=0).decode()
    assert f"queues 1000   messages {sum(range(1_001))}" in text
    assert "out 1000   consumers 1000" in text
    assert re.findall(r"^q(\d+) ", text, re.MULTILINE) == [str(number) for number in range(999, 979, -1)]
    equal = pages.Seen()
    for number in range(30):
        equal.add(b"q%d" % number, view(7), topic())
    assert [queue for queue, _ in equal.fullest] == [b"q%d" % number for number in range(20)]


def test_the_size_of_what_waits_is_told_by_the_messages_before() -> None:
    seen = pages.Seen()
    seen.add(b"q", view(3, 1), topic(message_count=10, message_bytes=10_240))
    assert seen.size_bytes == 4 * 1024
    # Nothing has come since the start: its log says how large they are.
    parts = tuple(
        PartitionView(partition=each, number=1, epoch=1, epochs=(), start=10, end=20, readable=20, size_bytes=20 << each, failed="")
        for each in range(2)
    )
    seen.add(b"r", view(10), topic(partitions=parts))
    assert seen.size_bytes == 4 * 1024 + 30
    seen.add(b"s", view(10), topic())
    assert "size ~4.0 KiB" in pages.monitor(seen, uptime_s=1, memory_bytes=1, clients=0).decode()


@given(st.text("ab*?[", max_size=8), st.text("ab?[]", max_size=10))
def test_a_star_is_anything_and_nothing_else_is_special(pattern: str, name: str) -> None:
    wanted = re.compile(".*".join(re.escape(piece) for piece in pattern.split("*")), re.DOTALL)
    visit = pages.search(pattern.upper().encode())
    assert visit("t", name.encode(), view(), []) is None
    is_found = visit("", None, None, []) != b"No queue is called so.\r\n"
    assert is_found == bool(wanted.fullmatch(name))
