"""docs/CLIENTS.md: which client library does what with polymq, as the tests of this folder found it.

A test that stands for a cell carries `@pytest.mark.cell(…)`; conftest.py notes its outcome here. When every cell has
been tried, the page is written, or compared with the one in the repository (POLYMQ_CLIENTS_TABLE).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.interop.jobs import Client

__all__ = ["COLUMNS", "Outcomes", "Row", "page"]

# A column's key is the name of a mode; with "+" it is several at once.
COLUMNS: Mapping[str, str] = {
    "plain": "plain",
    "tls": "TLS",
    "snappy": "snappy",
    "deflate": "deflate",
    "tls+snappy": "TLS, snappy",
    "tls+deflate": "TLS, deflate",
    "auth": "AUTH",
    "lookup": "nsqlookupd",
}

HEAD = """\
# Client libraries

## NATS

Every client of core NATS works; `nats-py` is the one that we recommend for Python. These are tried, with the same outcome on
polymq, nats-server 2.15.2 and 2.9.10: nats-py 2.16.0 (and its own tests), nats.go 1.55.0 with its example programs, the `nats` command line tool
0.4.0. What is not served, JetStream above all, is in [CAPABILITIES.md](CAPABILITIES.md).

## NSQ

What each client library of NSQ does with polymq. `make interop` runs every pair below, publishing and consuming, against polymq and, as the
control, against nsqd 1.3.0, and writes this page from what it found; in continuous integration a difference is a failure.

"yes" is: messages of all sizes and contents arrive byte for byte, each is settled once, and the statistics agree. "consuming" is: that alone.
"nsqlookupd" is: the client finds its server through a directory, polymq's or the real one. What plain connections have to stand besides
(deferring, requeueing, touching, timeouts, a broken handler, two consumers on one channel) is in `tests/interop/test_clients.py`.

"""


@dataclass(frozen=True, slots=True)
class Row:
    """A client of the table; the words are as in `jobs.Client`."""

    name: str
    title: str
    cannot: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, client: Client) -> Row:
        return cls(client.name, client.title, client.cannot, client.remarks)

    def why_not(self, column: str, action: str = "") -> list[str]:
        """List the reasons why a mode, or one action in it, is out of reach."""
        wanted = [f"{action} {part}".lstrip() for part in column.split("+")]
        return unique(self.cannot[each] for each in wanted if each in self.cannot)

    def remarks_on(self, column: str) -> list[str]:
        return unique(self.remarks[part] for part in column.split("+") if part in self.remarks)


def unique(texts: Iterable[str]) -> list[str]:
    """In order, each once."""
    return list(dict.fromkeys(texts))


class Outcomes:
    """What the tests of a run found."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], dict[str, bool]] = {}

    def note(self, client: str, column: str, test: str, *, passed: bool) -> None:
        """Take in one test's outcome, its last if it was tried again; a cell is good if all its tests are."""
        assert column in COLUMNS, column
        self._passed.setdefault((client, column), {})[test] = passed

    def found(self, client: str, column: str) -> bool:
        return all(self._passed[client, column].values())

    def missing(self, rows: Sequence[Row]) -> list[str]:
        """Name the cells that no test has spoken for."""
        return [
            f"{row.name}: {column}"
            for row in rows
            for column in COLUMNS
            if not row.why_not(column) and (row.name, column) not in self._passed
        ]


class Notes:
    """Remarks below the table, numbered in the order in which they are needed."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, texts: Sequence[str]) -> str:
        numbers = []
        for text in texts:
            if text not in self.texts:
                self.texts.append(text)
            numbers.append(str(self.texts.index(text) + 1))
        return f" ({', '.join(numbers)})" if numbers else ""


def cell(row: Row, column: str, outcomes: Outcomes, notes: Notes) -> str:
    """Say what one client does in one mode."""
    if reasons := row.why_not(column):
        return "–" + notes.mark(reasons)
    if not outcomes.found(row.name, column):
        return "**fails**" + notes.mark(row.remarks_on(column))
    half = row.why_not(column, "publish")
    return ("consuming" if half else "yes") + notes.mark([*half, *row.remarks_on(column)])


def page(rows: Sequence[Row], outcomes: Outcomes) -> str:
    """Write the page; every cell has been tried."""
    notes = Notes()
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        title = row.title + notes.mark([row.remarks[""]] if "" in row.remarks else [])
        lines.append(f"| {' | '.join([title, *(cell(row, column, outcomes, notes) for column in COLUMNS)])} |")
    below = [f"{number}. {text[0].upper()}{text[1:]}." for number, text in enumerate(notes.texts, 1)]
    return HEAD + "\n".join([*lines, "", *below]) + "\n"
