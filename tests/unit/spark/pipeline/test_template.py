"""The file that `init` writes: it can be read as it is, and its comments say what the defaults really are."""

from __future__ import annotations

import re
from pathlib import Path

from polymq.spark.pipeline import config, template

TEXT = template.write(name='a "b" \\', server="h:4171", topics="a,b")


def test_it_can_be_read_as_it_is() -> None:
    found = config.parse(TEXT, Path("/x"))
    assert found.name == 'a "b" \\'
    assert found.source_options["subscribe"] == "a,b"
    assert found.statistics_server == "h:4171"


def test_what_is_commented_out_can_be_read_and_names_the_defaults() -> None:
    bare = re.sub(r"^# (?=[\[\w\"]+.*(=|\]$))", "", TEXT, flags=re.MULTILINE)
    found = config.parse(bare, Path("/x"))
    assert found.topics["orders"].schema
    assert found.gold["busiest"]
    defaults = config.parse("", Path("/x"))
    assert (found.every, found.files_min, found.file_size_bytes) == (defaults.every, defaults.files_min, defaults.file_size_bytes)
    assert (found.decode, found.repeat_window_seconds, found.master, found.memory) == ("json", 3600.0, "local[2]", "1g")


def test_every_table_and_key_is_in_it() -> None:
    for table, keys in config.TABLES.items():
        assert not table or f"[{table}]" in TEXT
        for key in keys:
            assert re.search(rf"^(# )?\"?{key}\"? = |^(# )?\[{table}\.{key}\]", TEXT, re.MULTILINE), f"{table}.{key}"
