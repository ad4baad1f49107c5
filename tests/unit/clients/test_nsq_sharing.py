from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.clients.nsq_sharing import Sharing, Throttle

SERVERS = [f"s{number}" for number in range(8)]


@given(st.integers(1, 30), st.lists(st.tuples(st.sets(st.sampled_from(SERVERS)), st.sets(st.sampled_from(SERVERS))), max_size=20))
def test_everything_is_divided_evenly_whatever_happens(total: int, periods: list[tuple[set[str], set[str]]]) -> None:
    sharing = Sharing(total)
    for servers, busy in periods:
        for shares in (sharing.divide(sorted(servers)), sharing.rotate(sorted(servers), busy)):
            assert set(shares) == servers
            assert sum(shares.values()) == (total if servers else 0)
            assert not shares or max(shares.values()) - min(shares.values()) <= 1


def places(shares: dict[str, int]) -> set[str]:
    return {server for server, share in shares.items() if share}


def test_who_has_a_place_keeps_it_when_others_come_or_go() -> None:
    sharing = Sharing(2)
    assert places(sharing.divide(["a", "b"])) == {"a", "b"}
    assert places(sharing.divide(["0", "a", "b", "c"])) == {"a", "b"}
    assert places(sharing.divide(["0", "b", "c"])) == {"b", "0"}


def test_idle_servers_give_their_place_to_who_waits_longest() -> None:
    sharing = Sharing(1)
    servers = ["a", "b", "c"]
    assert [places(sharing.rotate(servers, set())) for _ in range(4)] == [{"b"}, {"c"}, {"a"}, {"b"}]


def test_busy_servers_keep_theirs_for_six_periods() -> None:
    sharing = Sharing(1)
    assert [places(sharing.rotate(["a", "b"], {"a"})) for _ in range(7)] == [{"a"}] * 5 + [{"b"}, {"a"}]


def test_places_do_not_move_when_there_are_enough() -> None:
    sharing = Sharing(5)
    assert sharing.divide(["a", "b"]) == sharing.rotate(["a", "b"], set()) == {"a": 3, "b": 2}


def test_the_place_for_a_trial_moves_as_well() -> None:
    sharing = Sharing(100)
    servers = ["a", "b", "c"]
    assert [next(iter(sharing.rotate(servers, set(), 1))) for _ in range(4)] == ["b", "c", "a", "b"]
    assert [next(iter(sharing.rotate(servers, {"b"}, 1))) for _ in range(7)] == ["b"] * 5 + ["c", "a"]
    assert [next(iter(sharing.rotate(servers, set()))) for _ in range(2)] == ["a", "a"]


def test_the_throttle_waits_longer_after_each_failure_and_comes_back_step_by_step() -> None:
    throttle = Throttle(1, 4)
    assert (throttle.limit(0), throttle.until()) == (None, None)
    throttle.succeeded(0)
    throttle.failed(0)
    throttle.failed(0.5)  # was on its way already
    assert (throttle.limit(0.9), throttle.limit(1), throttle.until()) == (0, 1, 1)
    throttle.failed(1)
    assert throttle.until() == 3
    throttle.failed(3)
    throttle.failed(7)
    assert throttle.until() == 11  # four seconds are the longest
    for now, until in ((11, 15), (15, 17), (17, 18)):
        throttle.succeeded(now)
        throttle.succeeded(now)
        assert (throttle.until(), throttle.limit(now), throttle.limit(until)) == (until, 0, 1)
    throttle.succeeded(18)
    assert throttle.limit(18) is None
