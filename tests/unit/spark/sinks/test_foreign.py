"""What the sinks into other brokers take, and what they make of rows; that it arrives is for tests/interop/test_spark_sinks.py."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from polymq.clients.broker_sync import Outgoing
from polymq.errors import ConfigError, ConnectionLost, Refusal, RefusalCode
from polymq.spark.sinks import foreign, nats, nsq, phpmq, rocketmq
from polymq.spark.sinks.columns import Taken, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_NS = 1_800_000_000_000_000_000
SERVERS = {nsq: {"server": "h:1"}, nats: {"server": "h:1"}, phpmq: {"server": "h:1"}, rocketmq: {"namesrvAddr": "h:1;g:2"}}
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def schema_of(*names: str) -> StructType:
    kinds = {"key": BinaryType(), "delay_ms": LongType(), "ttl_seconds": IntegerType(), "partition": IntegerType()}
    return StructType([StructField(name, kinds.get(name, StringType())) for name in names])


def job_of(module: Any, *names: str, **options: str) -> Any:
    return vars(module.writer({**SERVERS[module], "topic": "t", **options}, schema_of("value", *names), False))["_job"]


def messages(module: Any, query: str = "q/0", options: dict[str, str] | None = None, **columns: Any) -> list[Outgoing]:
    job = job_of(module, *(name for name in columns if name != "value"), **(options or {}))
    taken = Taken(job.taken.known, job.taken.id_column)
    return list(foreign.messages_of(job, table_of(pa.RecordBatch.from_pydict(columns), taken, "t", NOW_NS), query, NOW_NS))


@pytest.mark.parametrize("module", SERVERS)
def test_each_says_which_columns_and_options_it_has(module: Any) -> None:
    job = job_of(module)
    assert (job.taken.known, job.topic, job.retry_seconds) == (("value",), "t", 60.0)
    assert repr(job) == f"<write to {job.reach.url}>"
    with pytest.raises(ConfigError, match=r"unknown column reply\. Known columns: value"):
        job_of(module, "reply")
    with pytest.raises(ConfigError, match="unknown option tpoic; did you mean topic"):
        job_of(module, tpoic="x")
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        module.stream_writer(SERVERS[module], schema_of("value"), True)
    with pytest.raises(ConfigError, match="must be host:port"):
        module.stream_writer({"topic": "t"}, schema_of("value"), False)
    assert module.stream_writer({**SERVERS[module], "topic": "t"}, schema_of("value"), False)


@pytest.mark.parametrize("module", SERVERS)
def test_an_address_is_checked_and_no_secret_is_shown(module: Any) -> None:
    (name,) = SERVERS[module]
    for wrong in ("user:hush@h:1", "hush@h:1", "hush:x@y", "h:1/hush"):
        with pytest.raises(ConfigError, match=f"{name} must be host:port and nothing else") as caught:
            module.writer({name: wrong, "topic": "t"}, schema_of("value"), False)
        assert "hush" not in str(caught.value)
    for wrong in ("h:port", "h:0", "h:65536", "::1:4150", "a b:1", "unix:place"):
        with pytest.raises(ConfigError, match=f"{name}: "):
            module.writer({name: wrong, "topic": "t"}, schema_of("value"), False)
    assert job_of(module, **{name: "[::1]:1"}).reach.url.endswith("://[::1]:1")


def test_options_of_clients_are_in_no_repr() -> None:
    for module, name in ((nats, "token"), (nsq, "secret"), (rocketmq, "accessKey")):
        more = {"secretKey": "x"} if module is rocketmq else {}
        job = job_of(module, **{name: "hush"}, **more)
        assert "hush" not in repr((job, job.reach))


@pytest.mark.parametrize("module", [nsq, phpmq])
def test_where_there_are_no_headers_there_is_no_id(module: Any) -> None:
    with pytest.raises(ConfigError, match="its messages have no headers"):
        job_of(module, "id", idColumn="id")
    assert messages(module, value=["a"]) == [Outgoing("t", b"a")]


def test_rows_are_messages() -> None:
    found = messages(
        rocketmq,
        options={"idColumn": "id"},
        value=["a", "b"],
        key=pa.array([b"k", None], pa.binary()),
        topic=["u", None],
        tags=["T", None],
        delay_ms=pa.array([None, 1500]),
        partition=pa.array([None, 3], pa.int32()),
        id=["1", "2"],
    )
    assert found == [
        Outgoing("u", b"a", key="k", headers={"polymq-id": "1"}, tags="T", order="k"),
        Outgoing("t", b"b", headers={"polymq-id": "2"}, delay=1.5, order=3),
    ]
    assert messages(phpmq, value=["a"], ttl_seconds=pa.array([5], pa.int32())) == [Outgoing("t", b"a", ttl=5.0)]


def test_an_id_is_the_same_whenever_a_batch_is_written_and_another_for_other_rows() -> None:
    def ids(query: str, *values: str, topic: str = "t") -> list[str]:
        return [each.headers["Nats-Msg-Id"] for each in messages(nats, query, value=list(values), topic=[topic] * len(values))]

    first = ids("q/0", "a", "b")
    assert ids("q/0", "b", "a") == first[::-1]
    others = [*ids("q/1", "a"), *ids("p/0", "a"), *ids("q/0", "a", topic="u"), *ids("q/0", "c")]
    assert len({*first, *others}) == 6


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="a key that is not UTF-8"):
        messages(rocketmq, value=["a"], key=pa.array([b"\xff"], pa.binary()))


class FakeBroker:
    """Confirms what a test says: one list of outcomes for each call, or an exception."""

    plan: list[Any]
    calls: list[list[bytes]]

    def __init__(self, _url: str, _options: object) -> None:
        pass

    def publish_each(self, sent: Sequence[Outgoing]) -> list[Any]:
        self.calls.append([each.body for each in sent])
        outcome = self.plan.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return list(outcome)

    def close(self) -> None:
        raise ConnectionLost("it was lost before")


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Any:
    FakeBroker.plan, FakeBroker.calls = [], []
    monkeypatch.setattr(foreign, "Broker", FakeBroker)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    made = foreign._Publisher(job_of(nats, retryTimeoutMs="60000"))
    yield made
    made.close()


def test_what_nobody_has_confirmed_is_sent_again(publisher: Any) -> None:
    lost = ConnectionLost("gone")
    FakeBroker.plan = [[None, lost, lost], lost, [None, None]]
    publisher.publish([Outgoing("t", body) for body in (b"a", b"b", b"c")])
    assert FakeBroker.calls == [[b"a", b"b", b"c"], [b"b", b"c"], [b"b", b"c"]]


def test_what_is_refused_is_said(publisher: Any) -> None:
    FakeBroker.plan = [[None, Refusal(RefusalCode.TOPIC_FULL)]]
    with pytest.raises(Refusal):
        publisher.publish([Outgoing("t", body) for body in (b"a", b"b")])


def test_a_broker_that_stays_away_is_given_up(publisher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 25))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    FakeBroker.plan = [ConnectionLost("gone")] * 9
    with pytest.raises(ConnectionLost):
        publisher.publish([Outgoing("t", b"a")])
    assert 1 < len(FakeBroker.calls) < 5


def test_runs_have_their_size() -> None:
    sizes = [len(run) for run in foreign._runs(Outgoing("t", b"x" * 1000) for _ in range(9000))]
    assert sizes == [4195, 4195, 610]
