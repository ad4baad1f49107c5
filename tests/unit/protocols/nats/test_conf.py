"""Blocks, lists, variables, included files: what a file comes to, and every way in which it cannot."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.nats.conf import parse
from polymq.protocols.nats.conf_tree import Block
from tests.unit.protocols.nats.conf_writer import Data, plain, read, write

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20) | st.text("ab \n)('\"\\#$", max_size=12)
WORDS = TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.builds(lambda n: n / 64, st.integers(-(10**6), 10**6))
TIMES = st.datetimes(min_value=datetime(1000, 1, 1)).map(lambda each: each.replace(microsecond=0, tzinfo=UTC))  # noqa: DTZ001  # hypothesis wants it so
KEYS = st.from_regex(r"[A-Za-z0-9_.$*>/-]{1,10}", fullmatch=True) | st.text("ab \n#:={", min_size=1, max_size=6)
VALUES: st.SearchStrategy[Data] = st.recursive(
    WORDS | TIMES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(KEYS, VALUES, max_size=5), st.data())
def test_what_is_written_is_read(data: dict[str, Data], chosen: st.DataObject) -> None:
    text = write(data, lambda options: chosen.draw(st.sampled_from(options)))
    document = read(text)
    assert (document.problems, plain(document.root)) == ((), data)


def test_every_key_has_its_place() -> None:
    document = read("one: 1\n\ntwo {\n  three: [\n    x\n    { four: 4 }\n  ]\n}\n")
    two = document.root.entries["two"]
    assert (str(document.root.entries["one"].place), str(two.place)) == ("test.conf:1", "test.conf:3")
    assert isinstance(two.data, Block)
    three = two.data.entries["three"]
    assert isinstance(three.data, tuple)
    assert [str(each.place) for each in (three, *three.data)] == ["test.conf:4", "test.conf:5", "test.conf:6"]
    inner = three.data[1].data
    assert isinstance(inner, Block)
    assert str(inner.entries["four"].place) == "test.conf:6"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", {}),
        ("# only a comment", {}),
        ("\ufeffport: 1", {"port": 1}),
        ("port 1", {"port": 1}),
        ("port\n1", {"port": 1}),
        ("cluster\n{ name: a }", {"cluster": {"name": "a"}}),
        ("cluster { port:\n 1 }", {"cluster": {"port": 1}}),
        ("a: 1, b: 2; c: 3", {"a": 1, "b": 2, "c": 3}),
        ("a: 1 # said\nb: 2 // said\r\nc: 3\r", {"a": 1, "b": 2, "c": 3}),
        ('{ "port": 1, "cluster": {"name": "a"} }\n', {"port": 1, "cluster": {"name": "a"}}),
        ("{ a: 1 }\n{ b: 2 } # two of them\nc: 3", {"a": 1, "b": 2, "c": 3}),
        ("a: [1,2,\n 3\n\n,]", None),
        ("a: [1,2,\n 3\n ]", {"a": [1, 2, 3]}),
        ("a: [x # one\n y, // two\n z]", {"a": ["x", "y", "z"]}),
        ("a: [[], {}, [[1]]]", {"a": [[], {}, [[1]]]}),
        ("a {b {c {d 1}}}", {"a": {"b": {"c": {"d": 1}}}}),
        ("$SYS { users = [ { user: admin } ] }", {"$SYS": {"users": [{"user": "admin"}]}}),
    ],
)
def test_files(text: str, data: object) -> None:
    document = read(text)
    assert bool(document.problems) is (data is None)
    if data is not None:
        assert plain(document.root) == data


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port:\n 1", "test.conf:1: expected a value on the same line; write it behind the : or ="),
        ("x: 1\nport:", "test.conf:2: expected a value, not the end of the file"),
        ("port: # the port\n", "test.conf:1: expected a value, not a comment"),
        ("port: 1 http: 2", "test.conf:1: expected the end of the line or ',' or ';' after a value, not 'h'; a text with blanks"),
        ("name: my server", "test.conf:1: expected the end of the line or ',' or ';' after a value, not 's'; a text with blanks"),
        ("listen: [::1]:4222", "test.conf:1: expected the end of the line or ',' or ';' after a value, not ':'; a text with blanks"),
        ("a: [1 2]", "test.conf:1: expected the end of the line or ',' or ']' after a value, not '2'"),
        ("a: [1,,2]", "test.conf:1: expected a value, not ','"),
        ("a: [1;2]", "test.conf:1: expected the end of the line or ',' or ']' after a value, not ';'"),
        ("a {b: 1 c: 2}", "test.conf:1: expected the end of the line or ',' or ';' or '}' after a value, not 'c'"),
        ("a: 1\nb {\nc {}\n\n", "test.conf:2: the { here is not closed by a }"),
        ("a: 1\nb [\n1\n\n", "test.conf:2: the [ here is not closed by a ]"),
        ("{\na: 1\n", "test.conf:1: the { here is not closed by a }"),
        ("a: 1\n}\n", "test.conf:2: expected a key, not '}'"),
        ("{ a: 1, {b: 2} }", "test.conf:1: expected a key, not '{'"),
    ],
)
def test_faults_of_grammar(text: str, said: str) -> None:
    (problem,) = read(text).problems
    assert problem[: len(said)] == said


def test_the_last_of_several_counts_and_a_note_says_so() -> None:
    document = read("a: 1\nb: 2\na: 3\n")
    assert plain(document.root) == {"b": 2, "a": 3}
    assert document.notes == ("test.conf:3: 'a' is written again; what line 1 says no longer counts",)


def test_variables_are_found_in_the_blocks_around() -> None:
    text = """
    x: outer
    list: [$x, $x]
    block { first: $x, x: inner, second: $x, deep { third: $x } }
    after: $x
    whole: $block
    """
    document = read(text)
    block = {"first": "outer", "x": "inner", "second": "inner", "deep": {"third": "inner"}}
    assert plain(document.root) == {"x": "outer", "list": ["outer", "outer"], "block": block, "after": "outer", "whole": block}
    assert document.root.variables == {"x", "block"}
    inner = document.root.entries["block"].data
    assert isinstance(inner, Block)
    assert inner.variables == {"x"}
    assert str(document.root.entries["after"].place) == "test.conf:5"


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ("text", "text"),
        ("4222", 4222),
        (" yes ", True),
        ("", ""),
        ("  ", ""),
        ('"12345"', "12345"),
        ("[a, b]", ["a", "b"]),
        ("{ a: 1 }", {"a": 1}),
        ("$OTHER", "other"),
        ("[$OTHER, $OTHER]", ["other", "other"]),
        ("$2a$11$hash", "$2a$11$hash"),
        ("word # a comment", "word"),
    ],
)
def test_variables_of_the_environment(given: str, data: object) -> None:
    document = read("OTHER: mine\nx: $GIVEN\n", environment={"GIVEN": given, "OTHER": "other"})
    assert document.problems == ()
    assert plain(document.root.entries["x"]) == data
    assert str(document.root.entries["x"].place) == "test.conf:2"


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("a: 1\nb: $c", {}, "test.conf:2: nothing above is called 'c', nor is there such a variable in the environment"),
        ("a: $b\nb: 1", {}, "test.conf:1: nothing above is called 'b'"),
        ("a { b: 1 }\nc: $b", {}, "test.conf:2: nothing above is called 'b'"),
        ("a: $a", {}, "test.conf:1: nothing above is called 'a'"),
        ("a: $A", {"A": "$A"}, "$A:1: the variable 'A' of the environment refers to itself"),
        ("a: $A", {"A": "[$B]", "B": "$C", "C": "$A"}, "$C:1: the variable 'A' of the environment refers to itself"),
        ("a: $A", {"A": "two words"}, "$A:1: expected the end of the line after a value, not 'w'; a text with blanks"),
        ("a: $A", {"A": "1\nb: 2"}, "$A:2: expected one value and nothing behind it ($A is a variable of the environment, test.conf:1"),
        ("a: $A", {"A": "{"}, "$A:1: the { here is not closed by a }"),
        ("a: $A", {"A": "x\udcff"}, "test.conf:1: the variable 'A' of the environment is no UTF-8"),
    ],
)
def test_variables_that_cannot_be_had(text: str, environment: dict[str, str], said: str) -> None:
    (problem,) = read(text, environment=environment).problems
    assert problem[: len(said)] == said


def test_what_a_variable_lacks_does_not_hide_what_follows() -> None:
    document = read("a: $x\nb: [1, $y]\nc: 3\n")
    assert len(document.problems) == 2
    assert plain(document.root) == {"a": None, "b": [1, None], "c": 3}


def test_included_files() -> None:
    files = {
        "./users/list.conf": "users = [a]\nx: 1\ny: $x\ninclude more.conf",
        "./users/more.conf": "more: yes\nport: 2",
        "etc/abs.conf": "abs: 1",
    }
    document = read(
        "port: 1\nx: mine\nauthorization {\n  include './users/list.conf'\n}\ninclude /etc/abs.conf; last: $abs\ninclude ./users/more.conf",
        files=files,
    )
    assert document.problems == ()
    assert document.notes == (), "to include something first, and to change some of it, is a habit"
    authorization = {"users": ["a"], "x": 1, "y": 1, "more": True, "port": 2}
    assert plain(document.root) == {"x": "mine", "authorization": authorization, "abs": 1, "last": 1, "more": True, "port": 2}
    block = document.root.entries["authorization"].data
    assert isinstance(block, Block)
    assert block.variables == {"x"}
    assert [str(block.entries[key].place) for key in ("users", "more")] == ["./users/list.conf:1", "./users/more.conf:1"]


def test_a_path_starts_at_the_folder_of_the_file() -> None:
    asked: list[str] = []

    def give(path: str) -> bytes:
        asked.append(path)
        return {"/etc/nats/main.conf": b"include a/b.conf", "/etc/nats/a/b.conf": b"include ../c.conf"}.get(path, b"")

    assert parse("/etc/nats/main.conf", read=give, environment={}).problems == ()
    assert asked == ["/etc/nats/main.conf", "/etc/nats/a/b.conf", "/etc/nats/a/../c.conf"]


@pytest.mark.parametrize(
    ("text", "files", "said"),
    [
        ("x: 1\ninclude no.conf", {}, "test.conf:2: include 'no.conf': there is no such file; an include starts at the folder"),
        ("include test.conf", {}, "test.conf:1: include 'test.conf': this file includes itself; take one of the includes out"),
        ("include ./a/../test.conf", {}, "test.conf:1: include './a/../test.conf': this file includes itself"),
        ("include a", {"a": "x {\n include b }", "b": "include a"}, "b:1: include 'a': this file includes itself"),
        ("include a", {"a": "x: 1\ny"}, "a:2: expected a value, not the end of the file"),
        ("include a", {"a": "x: $x\nz: 1"}, "a:1: nothing above is called 'x'"),
        ("x: mine\ninclude a", {"a": "y: $x"}, "a:1: nothing above is called 'x'"),
        ("include", {}, "test.conf:1: expected a value, not the end of the file"),
        ("include =", {}, "test.conf:1: expected the name of a file after include"),
    ],
)
def test_files_that_cannot_be_included(text: str, files: dict[str, str], said: str) -> None:
    document = read(text + "\nlast: 1" if "include" != text else text, files=files)
    (problem,) = document.problems
    assert problem[: len(said)] == said


def test_everything_else_is_still_read() -> None:
    document = read("include no.conf\ninclude a.conf\nx: $y\nlast: 1", files={"a.conf": "open {"})
    assert [problem.partition(": ")[0] for problem in document.problems] == ["test.conf:1", "a.conf:1", "test.conf:3"]
    assert plain(document.root) == {"x": None, "last": 1}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory"), "main.conf: there is no such file"),
        (PermissionError(13, "Permission denied"), "main.conf: cannot be read: Permission denied"),
        (OSError("odd"), "main.conf: cannot be read: odd"),
    ],
)
def test_a_file_that_cannot_be_read(error: OSError, said: str) -> None:
    def give(path: str) -> bytes:
        raise error

    assert parse("main.conf", read=give, environment={}).problems == (said,)


def test_a_file_that_is_no_text() -> None:
    document = parse("main.conf", read=lambda _: b"a: 1\nb: \xff\n", environment={})
    assert document.problems == ("main.conf:2: this is no UTF-8; save the file as UTF-8",)
    document = parse("main.conf", read=lambda _: b"a: 1\nb: \0\n", environment={})
    assert document.problems == ("main.conf:2: there is a zero byte; take it out, or save the file as UTF-8",)


def test_the_limit_of_depth() -> None:
    deep = limits.NATS_CONF_DEPTH_MAX
    assert read("a: " + "[" * deep + "]" * deep).problems == ()
    assert "within one another" in read("a: " + "[" * (deep + 1) + "]" * (deep + 1)).problems[0]
    assert "within one another" in read("a " + "{a " * 100_000).problems[0]
    chain = "v0: 1\n" + "".join(f"v{index + 1}: [$v{index}]\n" for index in range(deep + 1))
    assert [problem.partition(": ")[0] for problem in read(chain).problems] == [f"test.conf:{deep + 2}"]
    files = {f"f{index}": f"a {{ include f{index + 1} }}" for index in range(deep)}
    assert "within one another" in read("include f0", files=files).problems[0]


def test_the_limit_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NATS_CONF_VALUES_MAX", 1000)
    assert read("a: [" + "1," * 999 + "]").problems == ()
    said = ("test.conf:1: more than 1000 values, those behind variables counted each time",)
    assert read("a: [" + "1," * 1000 + "]").problems == said
    laughs = "v0: lol\n" + "".join(f"v{index + 1}: [$v{index},$v{index}]\n" for index in range(60))
    assert read(laughs).problems == (f"test.conf:9: {said[0].partition(': ')[2]}",)
    environment = {f"V{index}": f"[$V{index + 1},$V{index + 1}]" for index in range(50)} | {"V50": "lol"}
    assert said[0].partition(": ")[2] in read("a: $V0", environment=environment).problems[0]


def test_the_limit_of_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NATS_CONF_SIZE_BYTES_MAX", 100)
    assert read("#" * 100).problems == ()
    assert read("#" * 101).problems == ("test.conf: the configuration has more than 100 bytes",)
    document = read("include a\ninclude b\nx: $no\n", files={"a": "#" * 50, "b": "#" * 50})
    assert document.problems == ("test.conf:2: include 'b': the configuration has more than 100 bytes",), "nothing more is read"
    assert read("a: $A", environment={"A": "x" * 96}).problems == ("test.conf:1: $A: the configuration has more than 100 bytes",)


def test_the_limit_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NATS_CONF_FILES_MAX", 3)
    assert read("include a\ninclude a\n", files={"a": ""}).problems == ()
    document = read("include a\ninclude a\ninclude a\ninclude a\n", files={"a": ""})
    assert document.problems == ("test.conf:3: include 'a': more than 3 files; put some of them together",)


def test_what_is_wrong_shows_no_values() -> None:
    for text in (
        "password: planted 'x",
        'password: "planted',
        "password: planted'",
        r"password: \planted",
        "a { token: planted",
        "x: $planted'",
    ):
        (problem,) = read(text).problems
        assert "planted" not in problem
    (problem,) = read("x: $A", environment={"A": "planted planted"}).problems
    assert "planted" not in problem
