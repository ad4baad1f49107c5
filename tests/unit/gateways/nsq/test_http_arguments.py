"""Arguments of polymq's own endpoints: right, or a 400 that names them."""

from __future__ import annotations

import pytest

from polymq import limits
from polymq.gateways.nsq.http_answers import ApiError
from polymq.gateways.nsq.http_arguments import argument, number, page, read_message_id, read_number, read_truth, topic_argument
from polymq.wire.exchange import Request


def code(error: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    return error.value.status, error.value.message


@pytest.mark.parametrize("text", ["", " 1", "1 ", "-1", "+1", "1.0", "1e3", "0x1", "٣", "9223372036854775808", "1" * 20, "abc"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ApiError) as error:
        number({"max_bytes": text}, "max_bytes", 0)
    assert code(error) == (400, "INVALID_MAX_BYTES")


def test_numbers_within_bounds() -> None:
    assert read_number("9223372036854775807") == limits.TIME_NS_MAX
    assert [number({"n": text}, "n", None, low=2, high=4) for text in ("2", "4")] == [2, 4]
    for text in ("1", "5"):
        with pytest.raises(ApiError):
            number({"n": text}, "n", None, low=2, high=4)


def test_yes_and_no_are_nsqds() -> None:
    assert [read_truth(text) for text in ("true", "1", "false", "0")] == [True, True, False, False]
    for text in ("", "True", "yes", "2"):
        with pytest.raises(ValueError, match=f"^{text}$"):
            read_truth(text)


def test_ids_are_16_lower_case_hexadecimal_digits() -> None:
    assert read_message_id("7fffffffffffffff") == (1 << 63) - 1
    for text in ("", "7", "8000000000000000", "000000000000000G", "000000000000000A", "0x00000000000000", "00000000000000001"):
        with pytest.raises(ValueError, match=f"^{text}$"):
            read_message_id(text)


def test_what_is_missing() -> None:
    assert argument({}, "id", read_message_id, 5) == 5
    with pytest.raises(ApiError) as error:
        argument({}, "id", read_message_id)
    assert code(error) == (400, "MISSING_ARG_ID")


def test_pages() -> None:
    assert page({}) == (-1, 100)
    assert page({"after": "000000000000000a", "count": "250"}) == (10, 250)
    for name, text in (("after", "10"), ("count", "0"), ("count", "251")):
        with pytest.raises(ApiError) as error:
            page({name: text})
        assert code(error) == (400, f"INVALID_{name.upper()}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({}, "MISSING_ARG_TOPIC"), ({"topic": ""}, "INVALID_TOPIC"), ({"topic": "a$"}, "INVALID_TOPIC"), (None, "INVALID_REQUEST")],
)
def test_topics_that_cannot_be(arguments: dict[str, str] | None, message: str) -> None:
    with pytest.raises(ApiError) as error:
        topic_argument(Request("GET", "/", arguments=arguments))
    assert code(error) == (400, message)


def test_a_topic() -> None:
    given = {"topic": "t#ephemeral", "x": "y"}
    assert topic_argument(Request("GET", "/", arguments=given)) == ("t#ephemeral", given)
