"""docs/CONVERSIONS.md and the matrix's table say the same: the page is written by what polymq does, the table by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.interop.matrix_table import NAMES, PROTOCOLS, READERS, READS, WRITES, expected, left_out, record_of
from tests.interop.matrix_traffic import Parcel
from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = ROOT / "docs" / "CONVERSIONS.md"
WORDS = dict(zip(READERS, ("NSQ", "NATS", "RocketMQ", "PHPMQ", "Spark"), strict=True))
# The samples of the page.
SAMPLE = Parcel(
    0, b"", key="order 7", tags="TagA", headers=(("colour", "blue"), ("size", "groß")), reply="inbox.7", ttl_s=10, delay_ms=2000
)
CLOCKS = {"nsq": "to the ns", "rocketmq": "to the ms", "spark": "to the µs"}
COUNTED = {"nsq": "1, then 2", "rocketmq": "0, then 1"}


def section(title: str) -> list[dict[str, str]]:
    """The rows of a section's last table, by the heads of its columns; cells without the marks of code."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, f"there is no section {title}"
    table = [part for part in text.split("\n\n") if part.startswith("|")][-1]
    lines = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    heads, _, *rows = lines
    return [dict(zip(heads, row, strict=True)) for row in rows]


def table(title: str) -> dict[tuple[str, str], str]:
    """The cells of a section by publisher and reader."""
    rows = {row[""]: row for row in section(title)}
    return {(publisher, reader): rows[WORDS[publisher]][WORDS[reader]] for publisher in PROTOCOLS for reader in READERS}


def of_field(field: str, value: str) -> Callable[[str, str], str]:
    """What a cell says of a field that some publishers have, and some readers show."""

    def cell(publisher: str, reader: str) -> str:
        if field not in READS[reader]:
            return "–"
        return f"{READS[reader][field]} {value}" if field in WRITES[publisher] else "none"

    return cell


def headers(publisher: str, reader: str) -> str:
    if "headers" not in READS[reader]:
        return "–"
    own = dict(SAMPLE.headers)
    shown = [f"{name}: {value}" for name, value in expected(publisher, reader, SAMPLE).headers if name in own]
    return ", ".join(shown) or "none"


SECTIONS: dict[str, Callable[[str, str], str]] = {
    "Body": lambda publisher, reader: "byte by byte",
    "Time": lambda publisher, reader: CLOCKS[reader] if "time" in READS[reader] else "–",
    "Key": of_field("key", "order 7"),
    "Tags": of_field("tags", "TagA"),
    "Headers": headers,
    "Reply": of_field("reply", "inbox.7"),
    "Attempts": lambda publisher, reader: COUNTED[reader] if "attempts" in READS[reader] else "–",
    "Delay": lambda publisher, reader: "when it is due" if "delay" in WRITES[publisher] else "at once",
}


def plain(cell: str) -> str:
    """A cell without what tags do to filters, and without the colon behind a header's name."""
    cell = cell.partition(";")[0]
    return "none" if cell == "property TAGS none" else cell.replace("KEYS: ", "KEYS ")


@pytest.mark.parametrize("title", SECTIONS)
def test_the_page_says_what_the_table_says(title: str) -> None:
    wanted = {(publisher, reader): SECTIONS[title](publisher, reader) for publisher in PROTOCOLS for reader in READERS}
    assert {place: plain(cell) for place, cell in table(title).items()} == wanted


def test_the_page_says_what_becomes_of_a_lifetime() -> None:
    found = table("Lifetime")
    for publisher in PROTOCOLS:
        for reader in ("nsq", "rocketmq", "phpmq"):
            assert ("passed over" in found[publisher, reader]) == ("ttl" in WRITES[publisher]), (publisher, reader)
    assert "6 s left" in found["phpmq", "phpmq"]


@pytest.mark.parametrize("reader", ["nats", "rocketmq"])
def test_the_page_leaves_out_what_the_table_leaves_out(reader: str) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("\n## What is left out\n")[2].partition("\n## ")[0]
    publisher = {"nats": "RocketMQ", "rocketmq": "NATS"}[reader]
    rows = re.findall(r"^\| `([^`]+)`.* \| (.+) \| (.+) \|$", text.partition(f"| {publisher} says |")[2].partition("\n\n")[0], re.MULTILINE)
    assert rows
    for said, got, _ in rows:
        name, _, value = said.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape").partition(": ")
        if said.startswith(("reply-to", "KEYS", "latin", "large")):
            continue  # the reply, the key, what no text can be, and sizes: not a question of one header
        assert (got == "–") == left_out(reader, name, value), said


def test_the_page_spells_names_as_the_table_does() -> None:
    rows = {row["topic"]: row for row in section("Names of topics")}
    for core, names in NAMES.items():
        row = rows[core]
        shown = {name: "–" if spelt is None else spelt.replace("\n", "\\x0a") for name, spelt in names.items()}
        assert {name: row[WORDS[name]] for name in PROTOCOLS} == shown


def test_a_record_has_what_its_publisher_can_say() -> None:
    """The table itself: nobody writes what he does not have, and everything that is written is read by somebody."""
    for publisher in PROTOCOLS:
        record = record_of(publisher, SAMPLE)
        assert bool(record.key) == ("key" in WRITES[publisher])
        assert bool(record.headers) == ("headers" in WRITES[publisher] or "reply" in WRITES[publisher])
        assert bool(record.ttl_s) == ("ttl" in WRITES[publisher])
    assert {field for fields in WRITES.values() for field in fields} - {"delay"} <= {field for fields in READS.values() for field in fields}
