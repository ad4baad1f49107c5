from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.views import GroupView, QueuedView
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


def test_a_monitor_without_queues() -> None:
    text = pages.monitor([], uptime_s=1.5, memory_bytes=5 << 40, is_all=False).decode()
    assert "up 0:00:01   memory 5.0 TiB" in text
    assert "queues 0+" in text


@given(st.text("ab*?[", max_size=8), st.text("ab?[]", max_size=10))
def test_a_star_is_anything_and_nothing_else_is_special(pattern: str, name: str) -> None:
    wanted = re.compile(".*".join(re.escape(piece) for piece in pattern.split("*")), re.DOTALL)
    visit = pages.search(pattern.upper().encode())
    assert visit("t", name.encode(), view(), []) is None
    is_found = visit("", None, None, []) != b"No queue is called so.\r\n"
    assert is_found == bool(wanted.fullmatch(name))
