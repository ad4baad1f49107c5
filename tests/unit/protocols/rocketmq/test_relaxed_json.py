"""What fastjson writes is read, and object keys are written as it reads them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.relaxed_json import ObjectKey, dumps, loads, loads_object
from polymq.rocketmq_limits import JSON_BODY_SIZE_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=10,
)
QUEUE = ObjectKey.of(brokerName="broker-a", queueId=3, topic="T")


@given(values)
def test_standard_json_is_read_as_ever(value: object) -> None:
    assert loads(json.dumps(value).encode()) == value


@given(values)
def test_what_is_written_is_read(value: object) -> None:
    clean = json.loads(json.dumps(value).encode("utf-8", "replace").decode())
    assert loads(dumps(value).decode().encode()) == loads(dumps(clean))


def test_objects_as_keys() -> None:
    body = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:{"minOffset":0},{"topic":"T","brokerName":"b","queueId":0}:5}}'
    )
    found = loads(body)
    assert found == {"offsetTable": {QUEUE: {"minOffset": 0}, ObjectKey.of(brokerName="b", queueId=0, topic="T"): 5}}
    assert QUEUE.get("queueId") == 3
    assert QUEUE.get("none", 7) == 7
    assert dumps({"offsetTable": {QUEUE: {"minOffset": 0}}, 5: [QUEUE, (), {}]}) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:{"minOffset":0}},'
        b'"5":[{"brokerName":"broker-a","queueId":3,"topic":"T"},[],{}]}'
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        (b"{a:1,b_c:true,$d:null}", {"a": 1, "b_c": True, "$d": None}),
        (b"{'a':'it\\'s'}", {"a": "it's"}),
        (b'{0:{"$ref":"$.x"},}', {"0": {"$ref": "$.x"}}),
        (b"[1.5,1e3,-7,x,]\n\0", [1.5, 1000.0, -7, "x"]),
        (b'{true:1,"a\\u0041":2}', {"true": 1, "aA": 2}),
        (b'{{"a":[1]}:1}', {ObjectKey((("a", "[1]"),)): 1}),
        (b'{"a":"raw\ttab"}', {"a": "raw\ttab"}),
    ],
)
def test_the_dialect(body: bytes, value: object) -> None:
    assert loads(body) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"}",
        b"{:1}",
        b"{a}",
        b"{a:}",
        b"{a:1 b:2}",
        b"[1 2]",
        b"[,]",
        b"{[1]:2}",
        b'{a:"\\x"}',
        b'{a:"',
        b"{a:1}}",
        b"\xff\xfe",
        b"{a:#}",
    ],
)
def test_what_is_none(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        loads(body)
    assert not raised.value.fatal


def test_limits() -> None:
    assert loads(b" " * (JSON_BODY_SIZE_BYTES_MAX - 2) + b"{}") == {}
    deep = b"{0:" * JSON_DEPTH_MAX
    assert loads(deep + b"1" + b"}" * JSON_DEPTH_MAX)
    for body in (
        b" " * (JSON_BODY_SIZE_BYTES_MAX - 1) + b"{}",
        b"[" + b"{}," * JSON_VALUES_MAX + b"{}]",
        b"{0:" + deep + b"1" + b"}" * (JSON_DEPTH_MAX + 1),
        b"[" * 100_000,
        b"{" * 100_000,
    ):
        with pytest.raises(RemoteProtocolError):
            loads(body)


@pytest.mark.parametrize("unit", [b'{0:"', b"'", b'"\\', b"{a:", b"a", b"9", b"$", b'{"a":1}:', b" "])
def test_no_body_takes_long(unit: bytes) -> None:
    body = b"{0:" + unit * (JSON_BODY_SIZE_BYTES_MAX // len(unit) - 4)
    start = time.process_time()
    with pytest.raises(RemoteProtocolError):
        loads(body)
    assert time.process_time() - start < 2


def test_only_objects() -> None:
    assert loads_object(b'{"a":1}') == {"a": 1}
    with pytest.raises(RemoteProtocolError):
        loads_object(b"[]")
