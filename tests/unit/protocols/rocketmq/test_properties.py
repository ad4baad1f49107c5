"""Properties are read and changed as they travel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.rocketmq import properties

names = st.sampled_from(["TAGS", "KEYS", "A", "AB", "é"])
raws = st.lists(
    st.one_of(st.builds("{}\x01{}".format, names, st.text("A\x01é", max_size=3)), st.text(alphabet="TAGS\x01\x02", max_size=5)), max_size=5
).map("\x02".join)


def test_with_and_without_the_last_end() -> None:
    for end in (b"", b"\x02"):
        assert properties.parse(b"KEYS\x01a b\x02TAGS\x01T" + end) == {"KEYS": "a b", "TAGS": "T"}


def test_what_counts() -> None:
    assert properties.parse(b"A\x011\x02A\x012\x02B\x01\x02\x01x\x02C\x02D\x01a\x01b") == {"A": "2", "D": "a\x01b"}
    assert properties.parse(memoryview(b"\xff\x01\xff")) == {"\ufffd": "\ufffd"}
    assert properties.encode({"A": "1", "": "x", "B": ""}) == b"A\x011\x02"


@given(raws.map(str.encode), names)
def test_one_is_found_as_among_all(raw: bytes, name: str) -> None:
    assert properties.get(raw, name) == properties.parse(raw).get(name)


@given(raws.map(str.encode), names)
def test_one_is_set_and_taken_away(raw: bytes, name: str) -> None:
    before = properties.parse(raw)
    without = {known: value for known, value in before.items() if known != name}
    assert properties.parse(properties.without_property(raw, name)) == without
    assert properties.parse(properties.with_property(raw, name, "new")) == without | {name: "new"}


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1), st.just("v")))
def test_what_is_written_is_read(known: dict[str, str]) -> None:
    assert properties.parse(properties.encode(known)) == known
