"""Headers are written and read as objects; what the decoder makes of them is in test_decode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.codes import Language
from polymq.protocols.rocketmq.header import Header, decode_binary, decode_json, dump_json, encode_binary, encode_json
from polymq.rocketmq_limits import UNUSUAL_HEADER_SIZE_BYTES_MAX

numbers = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
headers = st.builds(
    Header,
    st.integers(-(2**15), 2**15 - 1),
    numbers,
    numbers,
    st.dictionaries(texts.filter(bool), texts, max_size=4),
    st.one_of(st.none(), texts.filter(bool)),
    st.sampled_from([int(language) for language in Language]),
    st.integers(0, 2**15 - 1),
)


@given(headers)
def test_what_is_written_is_read(header: Header) -> None:
    assert decode_json(encode_json(header)) == header
    assert decode_binary(encode_binary(header)) == header


def test_the_vector_of_the_real_class() -> None:
    raw = encode_binary(Header(105, 7, 0, {"topic": "T1"}, "hi", 0, 479))
    assert raw.hex() == "00690001df00000007000000000000000268690000000d0005746f706963000000025431"


def test_defaults_and_values_that_are_no_strings() -> None:
    assert decode_json(b"{}") == Header(0, 0, 0, {}, None, 0, 0)
    found = decode_json(
        b'{"code":"12","language":5,"extFields":{"a":1.50,"b":true,"c":null,"d":[1,{"e":"f"}],"g":1e400,"h":NaN},"remark":7}'
    )
    assert found.ext == {"a": "1.50", "b": "true", "d": '["1",{"e":"f"}]', "g": "1e400", "h": "NaN"}
    assert (found.code, found.language, found.remark) == (12, int(Language.OTHER), "7")


def test_flags() -> None:
    assert (Header(1, flag=1).response, Header(1, flag=1).oneway) == (True, False)
    assert (Header(1, flag=2).response, Header(1, flag=2).oneway) == (False, True)


def test_languages_that_nobody_knows_are_other() -> None:
    assert decode_json(b'{"language":"KLINGON"}').language == Language.OTHER
    assert decode_binary(bytes((0, 0, 200)) + bytes(18)).language == Language.OTHER
    assert b'"OTHER"' in encode_json(Header(1, language=200))


def test_codes_above_16_bits_lose_what_is_above() -> None:
    assert decode_binary(encode_binary(Header(200050))).code == 3442
    assert decode_binary(encode_binary(Header(40000))).code == 40000 - 65536


def test_halves_of_characters_are_replaced() -> None:
    assert dump_json({"a": "\ud800"}) == b'{"a":"?"}'
    assert encode_json(Header(1, ext={"a": "\ud800"}, remark="\udc00")).count(b"?") == 2
    assert decode_binary(encode_binary(Header(1, ext={"a": "\ud800"}, remark="\udc00"))).remark == "?"


def test_names_that_do_not_fit_are_left_out() -> None:
    assert decode_binary(encode_binary(Header(1, ext={"x" * 32768: "a", "": "b", "y" * 32767: "c"}))).ext == {"y" * 32767: "c"}


@pytest.mark.parametrize("decode", [decode_json, decode_binary])
def test_too_large(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(RemoteProtocolError):
        decode(b" " * UNUSUAL_HEADER_SIZE_BYTES_MAX + b"{}")


def test_nothing_nested_breaks_it() -> None:
    for raw in (b'{"a":' * 200_000, b"[" * UNUSUAL_HEADER_SIZE_BYTES_MAX, b'{"extFields":{"a":' + b"[" * 100_000):
        with pytest.raises(RemoteProtocolError):
            decode_json(raw)
