"""Passwords are looked at in threads, once for all who ask the same, and never for nobody."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.gateways.login import PasswordCheck
from polymq.protocols.http.client import Question
from polymq.server import passwords
from polymq.server.passwords import PasswordOutside, is_right
from polymq.server.shell import Poller, WakeUp
from tests.unit.server.fakes import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.gateways.contract import Asked

HASH = b"$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"
PATIENCE_S = 10.0
THREADS = 2


@pytest.mark.parametrize(
    ("password", "right"), [(b"pass", True), (b"passe", False), (b"", False), (b"pas\0s", False), (HASH, False), (b"pass" * 50, False)]
)
def test_a_password_is_the_one_or_not(password: bytes, right: bool) -> None:
    assert is_right(PasswordCheck(password, HASH)) is right


def test_of_a_long_password_the_first_72_bytes_count_as_with_nats_server() -> None:
    # The hash of 72 times "x".
    long = b"$2b$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i"
    assert is_right(PasswordCheck(b"x" * 72, long))
    assert is_right(PasswordCheck(b"x" * 100, long))
    assert not is_right(PasswordCheck(b"x" * 71, long))


@pytest.mark.parametrize("text", [b"$2a$", b"$2a$04$short", b"$2a$99$" + b"a" * 53, b"plain"])
def test_what_is_no_hash_is_nobodys(text: bytes) -> None:
    assert not is_right(PasswordCheck(b"pass", text))


class Others:
    """Who is asked everything else."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def ask(self, request: object, answered: Callable[[object], None]) -> Asked:
        self.asked.append(request)
        return _Nothing()


class _Nothing:
    def cancel(self) -> None:
        """There is nothing to cancel."""


class Story:
    """Threads that stop at each password until they are let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.others = Others()
        self.poller = Poller()
        self.wake_up = WakeUp()
        self.looked: list[bytes] = []
        self.gate = threading.Semaphore(0)
        self.answers: list[tuple[str, object]] = []
        monkeypatch.setattr(passwords, "_threads_max", lambda: THREADS)
        self.outside = PasswordOutside(self.others, self.world.pump, self.poller, self.wake_up, look=self.look)

    def look(self, check: PasswordCheck) -> bool:
        self.looked.append(check.password)
        assert self.gate.acquire(timeout=PATIENCE_S)
        return check.password == b"right"

    def ask(self, who: str, password: bytes, remote_host: str = "") -> Asked:
        return self.outside.ask(PasswordCheck(password, HASH, remote_host), lambda answer: self.answers.append((who, answer)))

    def until(self, condition: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at
            for descriptor, _ in self.poller.poll(0.01):
                self.poller.callbacks[descriptor]()


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    found = Story(monkeypatch)
    yield found
    for _ in range(2000):
        found.gate.release()
    threads = list(found.outside._threads)
    found.outside.close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    found.poller.close()


def test_answers_come_when_they_are_known(story: Story) -> None:
    story.ask("one", b"right")
    story.ask("two", b"wrong")
    story.until(lambda: len(story.looked) == 2)
    assert story.answers == []
    for _ in range(2):
        story.gate.release()
    story.until(lambda: len(story.answers) == 2)
    assert sorted(story.answers) == [("one", True), ("two", False)]


def test_the_same_is_looked_at_once(story: Story) -> None:
    for number in range(100):
        story.ask(str(number), b"right")
    story.gate.release()
    story.until(lambda: len(story.answers) == 100)
    assert {answer for _, answer in story.answers} == {True}
    assert story.looked == [b"right"]
    story.ask("later", b"right")
    story.gate.release()
    story.until(lambda: len(story.answers) == 101)


def test_there_are_few_threads(story: Story) -> None:
    for number in range(20):
        story.ask(str(number), b"%d" % number)
    story.until(lambda: len(story.looked) == THREADS)
    assert len(story.outside._threads) == THREADS


def test_who_was_given_up_costs_nothing_and_hears_nothing(story: Story) -> None:
    for number in range(THREADS):
        story.ask(f"busy {number}", b"%d" % number)
    story.until(lambda: len(story.looked) == THREADS)
    story.ask("gone", b"right").cancel()
    story.ask("there", b"wrong")
    for _ in range(THREADS + 1):
        story.gate.release()
    story.until(lambda: len(story.answers) == THREADS + 1)
    assert b"right" not in story.looked
    assert "gone" not in dict(story.answers)


def test_who_asks_when_the_last_one_has_given_up_is_answered_truly(story: Story) -> None:
    for number in range(THREADS):
        story.ask(f"busy {number}", b"%d" % number)
    story.until(lambda: len(story.looked) == THREADS)
    story.ask("gone", b"right").cancel()
    for _ in range(THREADS):
        story.gate.release()
    give_up_at = time.monotonic() + PATIENCE_S
    while len(story.outside._ended) < THREADS + 1:  # a thread has seen that nobody waits, and nobody has been told
        assert time.monotonic() < give_up_at
        time.sleep(0.001)
    story.ask("there", b"right")
    story.gate.release()
    story.until(lambda: dict(story.answers).get("there"))


def test_too_many_are_told_so(story: Story) -> None:
    for number in range(limits.PASSWORDS_WAITING_MAX):
        story.ask(str(number), b"%d" % number)
    assert story.answers == []
    story.ask("too many", b"right")
    given_up = story.ask("gone", b"right")
    given_up.cancel()
    assert story.answers == [], "never before ask() has returned"
    story.world.turn()
    assert story.answers == [("too many", None)]


def test_everything_else_is_passed_on(story: Story) -> None:
    question = Question("http://h/", 1, 1)
    story.outside.ask(question, story.answers.append)  # type: ignore[arg-type]
    assert story.others.asked == [question]


def test_addresses_take_turns(story: Story) -> None:
    for number in range(THREADS):
        story.ask(f"busy {number}", b"%d" % number)
    story.until(lambda: len(story.looked) == THREADS)
    for number in range(300):
        story.ask(f"guess {number}", b"guess %d" % number, "192.0.2.66")
    story.ask("owner", b"right", "192.0.2.1")
    for _ in range(THREADS + 2):
        story.gate.release()
    story.until(lambda: "owner" in dict(story.answers))
    assert dict(story.answers)["owner"] is True
    assert len(story.looked) <= 2 * THREADS + 2, "one guess at most came before"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("not:one", "not:two", False),
    ],
)
def test_whose_turn_it_is(one: str, other: str, same: bool) -> None:
    assert (passwords._origin(one) == passwords._origin(other)) is same


def test_who_asks_most_gives_way_when_there_are_too_many(story: Story) -> None:
    for number in range(limits.PASSWORDS_WAITING_MAX):
        story.ask(f"guess {number}", b"%d" % number, "192.0.2.66")
    story.ask("owner", b"right", "192.0.2.1")
    story.world.turn()
    assert story.answers == [(f"guess {limits.PASSWORDS_WAITING_MAX - 1}", None)]
    story.ask("guess again", b"x", "192.0.2.66")
    story.world.turn()
    assert story.answers[1:] == [("guess again", None)]


def test_there_is_a_thread_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 2), (2, 2), (8, 8), (500, limits.PASSWORD_THREADS_MAX)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert passwords._threads_max() == threads
