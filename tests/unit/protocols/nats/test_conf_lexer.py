"""Words are read as nats-server reads them; what cannot be read is named with its place."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import ConfigError
from polymq.protocols.nats.conf_lexer import Scanner
from polymq.protocols.nats.conf_tree import Place


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("word", "word"),
        ("TRUE", True),
        ("yes", True),
        ("On", True),
        ("false", False),
        ("no", False),
        ("OFF", False),
        ('"true"', "true"),
        ("truely", "truely"),
        ("0", 0),
        ("007", 7),
        ("-42", -42),
        ("1k", 1000),
        ("1K", 1000),
        ("1kb", 1024),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("2m", 2_000_000),
        ("2MB", 2 << 20),
        ("3g", 3 * 10**9),
        ("3gib", 3 << 30),
        ("1t", 10**12),
        ("1TB", 1 << 40),
        ("1p", 10**15),
        ("1pi", 1 << 50),
        ("7e", 7 * 10**18),
        ("7eb", 7 << 60),
        ("-1k", -1000),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1k1", "1k1"),
        ("1kbb", "1kbb"),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("1.5M", "1.5M"),
        (".5", ".5"),
        ("2m30s", "2m30s"),
        ("10s", "10s"),
        ("1.2.3", "1.2.3"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("10.0.0.1/8", "10.0.0.1/8"),
        ("2024-02-29T12:30:59Z", datetime(2024, 2, 29, 12, 30, 59, tzinfo=UTC)),
        ("2024-02-29", "2024-02-29"),
        ("nats://a:b@host:6222", "nats://a:b@host:6222"),
        ("#secret", "#secret"),
        ("//host/share", "//host/share"),
        ("foo#bar", "foo#bar"),
        ('ab"cd', 'ab"cd'),
        ("a{b", "a{b"),
        (r"a\tb\x41", "a\tbA"),
        (r"\x24x", "$x"),
        (r"\x74rue", "true"),
        ("'it is \\n'", "it is \\n"),
        ("''", ""),
        ('""', ""),
        ('"a\nb"', "a\nb"),
        (r'"\"\\\t\r\n"', '"\\\t\r\n'),
        (r'"\xc3\xa9"', "é"),
        ('"# no comment"', "# no comment"),
        ("(\n1 (2)\n (\n  3\n )\n)\n", "\n1 (2)\n (\n  3\n )\n"),
        ("( one\r\n)\r\n", " one\r\n"),
        ("(\n)", "\n"),
        ("$2a$11$ooo.PX", "$2a$11$ooo.PX"),
        ("$2b$11$ooo.PX", "$2b$11$ooo.PX"),
        ("$2y$11$ooo.PX", "$2y$11$ooo.PX"),
    ],
)
def test_values(text: str, data: object) -> None:
    word = Scanner(text, "f").word()
    assert (word.data, type(word.data), word.variable) == (data, type(data), False)


@pytest.mark.parametrize("end", [" ", "\t", "\n", "\r", ",", ";", "]", "}", ""])
@pytest.mark.parametrize("text", ["word", "1", "1kb", "1.5", "1.2.3", "yes", "2024-02-29T12:30:59Z"])
def test_a_bare_word_ends_at_a_blank_or_what_closes(text: str, end: str) -> None:
    scanner = Scanner(text + end + "more", "f")
    scanner.word()
    assert scanner.position == (len(text) if end else len(text) + 4)


def test_a_number_keeps_its_spelling() -> None:
    assert [Scanner(text, "f").word().spelling for text in ("2m", "007", "1.50", "ON")] == ["2m", "007", "1.50", "ON"]


@pytest.mark.parametrize(("text", "name"), [("$x", "x"), ("$a.b-c", "a.b-c"), ("$2x", "2x"), ("$$x", "$x")])
def test_variables(text: str, name: str) -> None:
    word = Scanner(text, "f").word()
    assert (word.data, word.variable) == (name, True)


@pytest.mark.parametrize("text", ['"$x"', "'$x'", r"\x24x", r"$a\x41"])
def test_a_quoted_dollar_is_no_variable(text: str) -> None:
    assert not Scanner(text, "f").word().variable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'open\n", "f:1: the ' that begins this text is not closed"),
        ('"open\\"', 'f:1: the " that begins this text is not closed'),
        ("(\nopen\n )\n", "f:1: the ( that begins this text is not closed: expected a ) alone on a line, at its start"),
        ("it's", "f:1: a ' within a word; a text with blanks or any of"),
        (r"C:\path", r"f:1: only \t, \n, \r, \", \\ and \xHH mean something behind a backslash; a backslash itself is \\"),
        (r'"\x4"', r"f:1: only \t, \n,"),
        ("end\\", r"f:1: only \t, \n,"),
        (r'"\xff"', r"f:1: what the \x… stand for is not UTF-8"),
        ("$", 'f:1: expected the name of a variable after $; a $ alone is "$"'),
        (";", "f:1: expected a value, not ';'; an empty one is \"\""),
        ("", 'f:1: expected a value, not the end of the file; an empty one is ""'),
        ("\r", 'f:1: expected a value, not the end of the line; an empty one is ""'),
        ("9223372036854775808", "f:1: this number does not fit into 64 bits"),
        ("-9223372036854775809", "f:1: this number does not fit into 64 bits"),
        ("9e", ""),
        ("10e", "f:1: this number does not fit into 64 bits"),
        ("9" * 10_000, "f:1: this number does not fit into 64 bits"),
        ("0" * 10_000 + "1", ""),
        ("9" * 400 + ".0", "f:1: this number is too large"),
        ("2023-02-29T00:00:00Z", "f:1: there is no such time: day "),
        ("1.5#seconds", "f:1: expected a blank between a number and a comment"),
        ("2023-01-01T00:00:00Z//now", "f:1: expected a blank between a number and a comment"),
        ("2023-01-01T00:00:61Z", "f:1: there is no such time: second must be"),
    ],
)
def test_what_cannot_be_read(text: str, said: str) -> None:
    if not said:
        Scanner(text, "f").word()
        return
    with pytest.raises(ConfigError) as caught:
        Scanner(text, "f").word()
    assert str(caught.value)[: len(said)] == said


@pytest.mark.parametrize(
    ("text", "key", "include"),
    [
        ("port: 1", "port", False),
        ("port=1", "port", False),
        ('"two words": 1', "two words", False),
        ("'a\\\"b' 1", 'a\\"b', False),
        ("$SYS {", "$SYS", False),
        ("foo.*: 1", "foo.*", False),
        ("include x", "include", True),
        ("Include\tx", "Include", True),
        ("include: x", "include", False),
        ('"include" x', "include", False),
        ("includes x", "includes", False),
    ],
)
def test_keys(text: str, key: str, include: bool) -> None:
    assert Scanner(text, "f").key() == (key, include)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster{", "f:1: expected a blank, a : or a = after 'cluster', not '{'"),
        ("name}", "f:1: expected a blank, a : or a = after 'name', not '}'"),
        ("= 1", "f:1: expected a key, not '='"),
        ("[", "f:1: expected a key, not '['"),
        ('"open: 1', 'f:1: the " that begins this key is not closed'),
        ("'' 1", "f:1: a key cannot be empty"),
    ],
)
def test_what_is_no_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Scanner(text, "f").key()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "name"),
    [(" a.conf\n", "a.conf"), (" 'a b.conf'", "a b.conf"), (' "a\\b"', "a\\b"), ("\t./a,b.conf;", "./a,b.conf"), (" ../x/y }", "../x/y")],
)
def test_included_files(text: str, name: str) -> None:
    assert Scanner(text, "f").included() == name


@pytest.mark.parametrize("text", ["", "\n", " = x", " {", " [a]", " (a", ' ""', " $x", ' "a\0b"', " -x"])
def test_what_is_no_included_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f:1: expected the name of a file after include"):
        Scanner(text, "f").included()


def test_places_are_lines_from_one_on() -> None:
    scanner = Scanner("a\n\nb", "f")
    assert [scanner.place(position) for position in range(4)] == [Place("f", 1), Place("f", 1), Place("f", 2), Place("f", 3)]


def test_blanks_and_comments() -> None:
    scanner = Scanner(" \t# one\n// two\r\n \f\v# three", "f")
    scanner.skip_blank()
    assert scanner.next == ""
    scanner = Scanner(" / no comment", "f")
    scanner.skip_blank()
    assert scanner.next == "/"


@given(st.text(max_size=60) | st.text(" \n\r\t#/:={}[](),;'\"\\$xk0123456789.-eaTZ", max_size=60))
def test_whatever_it_is_a_word_or_an_error(text: str) -> None:
    for step in ("key", "word", "included"):
        scanner = Scanner(text, "f")
        try:
            getattr(scanner, step)()
        except ConfigError as error:
            assert error.problems[0].startswith("f:")
        assert 0 <= scanner.position <= len(text)
