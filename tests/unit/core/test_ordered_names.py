from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.ordered_names import TopicNames

names = st.text("abc", max_size=3)


@given(st.lists(st.tuples(st.sampled_from(("", "A")), names, st.booleans())), names, st.integers(1, 5))
def test_names_are_in_order_whatever_comes_and_goes(changes: list[tuple[str, str, bool]], after: str, count_max: int) -> None:
    found = TopicNames()
    wanted: dict[str, set[str]] = {"": set(), "A": set()}
    for namespace, name, looks in changes:
        if name in wanted[namespace]:
            wanted[namespace].remove(name)
            found.remove(namespace, name)
        else:
            wanted[namespace].add(name)
            found.add(namespace, name)
        if looks:
            assert found.all(namespace) == sorted(wanted[namespace])
    for namespace, those in wanted.items():
        assert found.page(namespace, after, count_max) == [name for name in sorted(those) if name > after][:count_max]
        assert found.all(namespace) == sorted(those)


def test_many_come_at_once() -> None:
    found = TopicNames()
    for number in range(100):
        found.add("", f"{number:02}")
    assert found.page("", "", 100) == found.all("") == [f"{number:02}" for number in range(100)]
    found.all("").clear()
    assert found.page("", "97", 100) == ["98", "99"]
    assert found.page("nothing", "", 5) == found.all("nothing") == []
