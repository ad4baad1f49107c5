"""Which files are a table's: one SQLite file that makes every change of any number of tables at once, or not at all.

A file in a folder belongs to a table only if it is here, so a batch that was written and not committed is never seen, one
that is repeated is known by its (writer, batch), and small files are exchanged for large ones in one step. What was
exchanged stays on the disk for a while, for those who are reading it. There is one writer, which holds a lock; anybody may read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import ConfigError, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

__all__ = [
    "BRONZE",
    "CATALOG_FILE",
    "GOLD",
    "QUARANTINE",
    "STATISTICS",
    "Catalog",
    "Entry",
    "Progress",
    "gold_table",
    "locked",
    "silver_table",
]

BRONZE: Final = "bronze"
QUARANTINE: Final = "quarantine"
STATISTICS: Final = "statistics"
# The position of the aggregates.
GOLD: Final = "gold"
# How many lines of progress are kept: a day of batches of ten seconds.
PROGRESS_MAX: Final = 10_000
CATALOG_FILE: Final = "catalog.sqlite"
_LOCK: Final = "writer.lock"
_BUSY_SECONDS: Final = 30.0

_TABLES: Final = """
create table if not exists versions (version integer primary key autoincrement, at_ns integer not null);
create table if not exists files (
    path text primary key, name text not null, topic text not null, date text not null, rows integer not null, size_bytes integer not null,
    first_us integer, last_us integer, first_offset integer, last_offset integer, schema integer not null,
    added integer not null, removed integer, removed_ns integer, is_rewritten integer not null
);
create index if not exists files_of on files (name, removed, added);
create table if not exists positions (writer text primary key, position integer not null);
create table if not exists progress (number integer primary key autoincrement, line text not null);
create table if not exists notes (name text primary key, text text not null);
"""


def silver_table(topic: str) -> str:
    """Name the table of a topic's decoded messages."""
    return f"silver/{topic}"


def gold_table(name: str) -> str:
    """Name an aggregate."""
    return f"gold/{name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a table, by its path below the storage folder.

    Times are those of the messages in microseconds, offsets theirs too; None where the table has none. `schema` is the
    version of the body's schema. `is_rewritten`: it has what other files had.
    """

    name: str
    path: str
    rows: int
    size_bytes: int
    topic: str = ""
    date: str = ""
    first_us: int | None = None
    last_us: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    schema: int = 0
    is_rewritten: bool = False
    added: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """What one micro-batch did, for status and report. `lag`: offsets that are there and not taken in; None if nobody knows."""

    at_ns: int
    batch: int
    rows: int
    duration_ms: int
    lag: int | None = None


class Catalog:
    """The files of all tables of a storage folder. Threads share one."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        storage.mkdir(parents=True, exist_ok=True)
        self._guard = threading.RLock()
        try:
            self._connection = sqlite3.connect(storage / CATALOG_FILE, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._connection.execute("pragma journal_mode=wal")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise StoreFailed(f"{storage / CATALOG_FILE} cannot be used: {error}") from error

    def close(self) -> None:
        """Close it."""
        with self._guard:
            self._connection.close()

    def commit(
        self,
        *,
        at_ns: int,
        add: Sequence[Entry] = (),
        remove: Sequence[str] = (),
        positions: Mapping[str, int] | None = None,
    ) -> int:
        """Make a change as a whole and give its version. Raises StoreFailed if it cannot be made; nothing has changed then."""
        with self._transaction() as execute:
            version = int(execute("insert into versions (at_ns) values (?)", (at_ns,)).lastrowid)
            for path in remove:
                execute("update files set removed = ?, removed_ns = ? where path = ? and removed is null", (version, at_ns, path))
            for each in add:
                row = asdict(each) | {"added": version}
                names = ", ".join(row)
                execute(f"insert into files ({names}) values ({', '.join('?' * len(row))})", tuple(row.values()))  # noqa: S608 - our own names
            for writer, position in (positions or {}).items():
                execute("insert or replace into positions values (?, ?)", (writer, position))
        return version

    def files(
        self, name: str, *, after: int = -1, through: int | None = None, original: bool = False, topic: str | None = None
    ) -> list[Entry]:
        """List a table's files in the order in which they came; those of versions > `after` and <= `through`, if it is said.

        `original`: as they were added, without what was rewritten and with what that replaced, as long as it is on the disk.
        """
        where, values = "name = ? and added > ?", [name, after]
        where += " and not is_rewritten" if original else " and removed is null"
        if through is not None:
            where, values = where + " and added <= ?", [*values, through]
        if topic is not None:
            where, values = where + " and topic = ?", [*values, topic]
        return [_entry(row) for row in self._rows(f"select * from files where {where} order by added, path", tuple(values))]  # noqa: S608

    def tables(self) -> dict[str, tuple[int, int, int]]:
        """Give files, rows and bytes of each table."""
        query = "select name, count(*) as files, sum(rows) as rows, sum(size_bytes) as size from files where removed is null group by name"
        return {row["name"]: (row["files"], row["rows"], row["size"]) for row in self._rows(query)}

    def topics(self, name: str) -> list[str]:
        """List the topics of a table."""
        return [row["topic"] for row in self._rows("select distinct topic from files where name = ? order by topic", (name,))]

    def version(self) -> int:
        """Give the newest version; 0 at the beginning."""
        (row,) = self._rows("select coalesce(max(version), 0) as version from versions")
        return int(row["version"])

    def position(self, writer: str) -> int:
        """Tell how far a writer has come; -1 at the beginning."""
        rows = self._rows("select position from positions where writer = ?", (writer,))
        return int(rows[0]["position"]) if rows else -1

    def removed_before(self, at_ns: int) -> list[str]:
        """List the paths of what has been out of use since then."""
        return [row["path"] for row in self._rows("select path from files where removed_ns < ? order by path", (at_ns,))]

    def forget(self, paths: Sequence[str]) -> None:
        """Forget files that are no longer on the disk."""
        with self._transaction() as execute:
            for path in paths:
                execute("delete from files where path = ? and removed is not null", (path,))

    def paths(self) -> set[str]:
        """List every file that is known, in use or not."""
        return {row["path"] for row in self._rows("select path from files")}

    def note_progress(self, line: Progress) -> None:
        """Keep what a batch did."""
        with self._transaction() as execute:
            number = execute("insert into progress (line) values (?)", (json.dumps(asdict(line)),)).lastrowid or 0
            execute("delete from progress where number <= ?", (number - PROGRESS_MAX,))

    def progress(self) -> list[Progress]:
        """List what the last batches did, oldest first."""
        return [Progress(**json.loads(row["line"])) for row in self._rows("select line from progress order by number")]

    def note(self, name: str, text: str) -> None:
        """Keep a short text for `status`: what is wrong with something; an empty one takes it back."""
        with self._transaction() as execute:
            if text:
                execute("insert or replace into notes values (?, ?)", (name, text[:2000]))
            else:
                execute("delete from notes where name = ?", (name,))

    def notes(self) -> dict[str, str]:
        """Give what was noted."""
        return {row["name"]: row["text"] for row in self._rows("select * from notes order by name")}

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._guard:
            try:
                self._connection.execute("begin immediate")
                yield self._connection.execute
                self._connection.execute("commit")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("rollback")
                if isinstance(error, sqlite3.Error):
                    raise StoreFailed(f"{self.storage / CATALOG_FILE} cannot be written: {error}") from error
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        with self._guard:
            try:
                cursor = self._connection.execute(query, tuple(values))
                names = [each[0] for each in cursor.description]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            except sqlite3.Error as error:
                raise StoreFailed(f"{self.storage / CATALOG_FILE} cannot be read: {error}") from error


def _entry(row: Mapping[str, Any]) -> Entry:
    values = {name: value for name, value in row.items() if name not in ("removed", "removed_ns")}
    return Entry(**values | {"is_rewritten": bool(row["is_rewritten"])})


@contextlib.contextmanager
def locked(storage: Path) -> Iterator[IO[str]]:
    """Be the only writer of a storage folder; raises ConfigError if there is another one. It ends with the process, however that ends."""
    storage.mkdir(parents=True, exist_ok=True)
    with (storage / _LOCK).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError([f"another process writes into {storage}: `polymq pipeline run` compacts and reports by itself"]) from error
        yield file
