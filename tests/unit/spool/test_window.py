"""The window of ids, compiled or not."""

from __future__ import annotations

import random

from polymq.spool.window import IdWindow, salt_of, words_of


def test_an_id_is_new_once_and_for_each_source() -> None:
    window = IdWindow(100)
    first, second = salt_of("a:1", b"t"), salt_of("b:1", b"t")
    assert window.add(b"0123456789abcdef", first)
    assert not window.add(b"0123456789abcdef", first)
    assert window.add(b"0123456789abcdef", second)
    assert window.add(b"0123456789abcdeg", first)
    assert window.count == 3


def test_the_id_of_zeros_is_an_id_too() -> None:
    window = IdWindow(10)
    assert window.add(bytes(16), 0)
    assert not window.add(bytes(16), 0)


def test_ids_of_other_sizes_are_hashed() -> None:
    assert words_of(b"x" * 16) == b"x" * 16
    assert len(words_of(b"x")) == len(words_of(b"x" * 40)) == 16
    assert words_of(b"x") != words_of(b"y")


def test_salts_are_not_negative_and_keep_servers_and_topics_apart() -> None:
    salts = {salt_of(server, topic) for server in ("a", "ab", "b") for topic in (b"c", b"bc", b"")}
    assert len(salts) == 9
    assert all(0 <= salt < 1 << 63 for salt in salts)


def test_as_many_ids_as_were_promised_are_known_and_memory_is_bounded() -> None:
    window = IdWindow(1000)
    ids = [b"%016d" % n for n in range(10_000)]
    for number, each in enumerate(ids):
        assert window.add(each, 7)
        known = ids[max(0, number - 999) : number + 1]
        assert not window.add(known[0], 7)
        assert not window.add(known[-1], 7)
        assert window.count + window.before <= 2000
    # What is older than both generations comes in again.
    assert window.add(ids[0], 7)


def test_turning_forgets_the_older_generation() -> None:
    window = IdWindow(1000)
    window.add(b"a" * 16, 1)
    window.turn()
    assert not window.add(b"a" * 16, 1)
    window.turn()
    assert window.add(b"a" * 16, 1)


def test_it_agrees_with_a_set() -> None:
    draw = random.Random(5)
    window, known = IdWindow(1 << 20), set()
    for _ in range(20_000):
        each = bytes(draw.randrange(256) for _ in range(2)).rjust(16, b"\0") if draw.random() < 0.5 else draw.randbytes(16)
        assert window.add(each, 3) == (each not in known)
        known.add(each)
    assert window.count == len(known)
