"""`polymq-pipeline.toml`: what it may say, and that every problem is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from polymq.errors import ConfigError
from polymq.spark.pipeline import config

FOLDER = Path("/somewhere")


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, FOLDER)
    return list(caught.value.problems)


def test_an_empty_file_is_a_pipeline_of_defaults() -> None:
    found = config.parse("", FOLDER)
    assert (found.name, found.storage, found.source_format, found.master) == ("pipeline", FOLDER / "archive", "polymq", "local[2]")
    assert found.every["silver"] == 5.0
    assert found.retention == dict.fromkeys(config.TABLES["retention"], 0.0)
    assert found.decoding_of("orders") == "json"
    assert found.statistics_server == ""


def test_everything_can_be_said() -> None:
    found = config.parse(
        """
        name = "shop"
        storage = "/data/shop"
        [source]
        format = "nats"
        [source.options]
        subscribe = "orders.>"
        maxOffsetsPerTrigger = 1000
        failOnDataLoss = false
        [triggers]
        gold = "5m"
        [silver]
        repeat_window = "2h"
        [topics."orders.eu"]
        schema = "id bigint"
        [topics.blobs]
        decode = "none"
        [retention]
        bronze = "30d"
        [compaction]
        files_min = 3
        file_size = "64MiB"
        [statistics]
        server = "hub:4171"
        [gold.own]
        sql = "SELECT 1"
        """,
        FOLDER,
    )
    assert found.storage == Path("/data/shop")
    assert found.source_options == {"subscribe": "orders.>", "maxOffsetsPerTrigger": "1000", "failOnDataLoss": "false"}
    assert (found.every["gold"], found.repeat_window_seconds, found.retention["bronze"]) == (300.0, 7200.0, 30 * 86400.0)
    assert found.topics["orders.eu"] == config.TopicRules(schema="id bigint")
    assert (found.decoding_of("blobs"), found.decoding_of("orders.eu")) == ("none", "json")
    assert (found.files_min, found.file_size_bytes, found.statistics_server) == (3, 64 * 1024 * 1024, "hub:4171")
    assert found.gold == {"own": "SELECT 1"}


@pytest.mark.parametrize("options", ['server = "h:1"', 'servers = "h:1,i:2"', 'Server = "h:1"'])
def test_statistics_are_asked_for_where_the_log_is(options: str) -> None:
    assert config.parse(f"[source.options]\n{options}", FOLDER).statistics_server == "h:1"
    assert config.parse(f'[source]\nformat = "nsq"\n[source.options]\n{options}', FOLDER).statistics_server == ""


def test_options_of_the_source_may_be_secrets_and_are_not_shown() -> None:
    assert "hush" not in repr(config.parse('[source.options]\nsecret = "hush"', FOLDER))


def test_every_problem_is_told_at_once_with_what_is_known() -> None:
    found = problems(
        """
        names = "x"
        [sauce]
        [triggers]
        gold = "soon"
        bronze = "0s"
        gould = "1m"
        [silver]
        decode = "xml"
        [compaction]
        files_min = 1
        [source]
        format = 3
        options = ["a"]
        """
    )
    text = "\n".join(found)
    assert len(found) == 9
    for words in (
        "unknown table [sauce]; did you mean source?",
        "unknown key names; did you mean name?",
        "unknown key gould; did you mean gold?",
    ):
        assert words in text
    assert "bronze (how often messages are taken in)" in text
    for words in ("[triggers] gold:", "[triggers] bronze must be more than 0", "[silver] decode: must be one of json, text, none"):
        assert words in text
    for words in ("[compaction] files_min: must be a whole number", "[source] format: must be a text", "[source] options: must be a table"):
        assert words in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gold.traffic]\nsql = 'SELECT 1'", "[gold.traffic]: the name"),
        ("[gold.'A b']\nsql = 'SELECT 1'", "the name must be of a-z"),
        ("[gold.own]\nsql = ' '", "[gold.own] needs sql"),
        ("[gold]\nown = 'SELECT 1'", "write [gold.own]"),
        ("[topics.a]\nschema = 'id bigint'\ndecode = 'text'", '[topics.a] schema is for decode = "json"'),
        ("[topics.a]\nscheme = 'id bigint'", "did you mean schema?"),
        ("[statistics]\nsecret_file = 'a'\nsecret_env = 'b'", "exclude each other"),
        ("[retention]\nbronze = '99999d'", "less than a century"),
        ("[source]\nformat =", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, words: str) -> None:
    assert any(words in problem for problem in problems(text)), problems(text)


def test_there_are_limits_to_topics_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "TOPICS_MAX", 1)
    monkeypatch.setattr(config, "GOLD_TABLES_MAX", 1)
    assert config.parse("[topics.a]\n[gold.a]\nsql='x'", FOLDER).gold == {"a": "x"}
    assert "1 [topics.<name>]" in problems("[topics.a]\n[topics.b]")[0]
    assert "1 [gold.<name>]" in problems("[gold.a]\nsql='x'\n[gold.b]\nsql='x'")[0]


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="polymq pipeline init"):
        config.load(tmp_path / config.FILE_NAME)
    (tmp_path / config.FILE_NAME).write_text("name = 'x'")
    assert config.load(tmp_path / config.FILE_NAME).storage == tmp_path / "archive"
