"""Background work: results and errors come back on the loop's thread, lanes do not hold each other up."""

from __future__ import annotations

import threading

import pytest

from polymq.store.workers import InlineWorker, Lane, ThreadWorker


def fail() -> object:
    raise ValueError("no")


def test_inline_jobs_run_at_once_and_end_later() -> None:
    worker = InlineWorker()
    ran: list[str] = []
    ended: list[object] = []

    def job() -> int:
        ran.append("job")
        return 5

    worker.submit(job, ended.append)
    worker.submit(fail, ended.append, lane=Lane.READ)
    assert ran == ["job"]
    assert ended == []
    assert worker.run_completions() == 2
    assert ended[0] == 5
    assert isinstance(ended[1], ValueError)
    assert worker.run_completions() == 0


def test_draining_runs_what_completions_submit() -> None:
    worker = InlineWorker()
    ended: list[object] = []
    worker.submit(lambda: 1, lambda one: worker.submit(lambda: (one, 2), ended.append))
    worker.drain()
    assert ended == [(1, 2)]
    worker.submit(lambda: 3, ended.append)
    worker.close()
    worker.drain()
    assert ended == [(1, 2)]


def test_threads_run_jobs_and_the_caller_runs_their_ends() -> None:
    woken = threading.Event()
    worker = ThreadWorker(woken.set)
    ended: list[tuple[object, str]] = []
    names: list[str] = []

    def job() -> int:
        names.append(threading.current_thread().name)
        return 7

    worker.submit(job, lambda result: ended.append((result, threading.current_thread().name)))
    assert woken.wait(10)
    worker.drain()
    assert ended == [(7, threading.current_thread().name)]
    assert names == ["polymq-sync"]
    worker.submit(fail, lambda result: ended.append((str(result), "")))
    worker.drain()
    assert ended[1] == ("no", "")
    worker.close()


def test_lanes_are_independent_and_each_keeps_its_order() -> None:
    worker = ThreadWorker(lambda: None)
    gate = threading.Event()
    ended: list[object] = []
    worker.submit(lambda: gate.wait(10), ended.append, lane=Lane.SYNC)
    worker.submit(lambda: "second", ended.append, lane=Lane.SYNC)
    read = threading.Event()
    worker.submit(read.set, ended.append, lane=Lane.READ)
    assert read.wait(10), "a read waited for a sync"
    gate.set()
    worker.drain()
    assert [each for each in ended if each is not None] == [True, "second"]
    worker.close()


def test_closing_forgets_jobs_that_have_not_begun() -> None:
    worker = ThreadWorker(lambda: None)
    began, gate = threading.Event(), threading.Event()
    ran: list[int] = []

    def first() -> None:
        began.set()
        gate.wait(10)

    worker.submit(first, lambda _: ran.append(1))
    worker.submit(lambda: ran.append(2), lambda _: ran.append(3))
    assert began.wait(10)
    closing = threading.Thread(target=worker.close)
    closing.start()
    while not worker._closing:
        pass
    gate.set()
    closing.join(10)
    assert worker.run_completions() == 0
    assert ran == []


@pytest.mark.parametrize("lane", list(Lane))
def test_every_lane_has_a_thread_of_its_own(lane: Lane) -> None:
    worker = ThreadWorker(lambda: None)
    names: list[object] = []
    worker.submit(lambda: threading.current_thread().name, names.append, lane=lane)
    worker.drain()
    assert names == [f"polymq-{lane.value}"]
    worker.close()
