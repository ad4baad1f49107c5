"""The RocketMQ part of the load generator against a server of our own: what it sends is right, and what it may not be told ends the run."""

from __future__ import annotations

import re
import struct
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bench.harness.generator import Generator, LoadError

from tests.interop.rocketmq_fake import BATCH, MAX_OFFSET, PULL, ROUTE, SEND, Answer, Asked, Fake, properties_of

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 128


def run(generator: Generator, fake: Fake, mode: str, **options: Any) -> dict[str, Any]:
    return generator.run(f"rocketmq-{mode}", fake.address, **{"size": SIZE, "deadline_s": 10, **options})


def numbers(fake: Fake, queue: int) -> list[int]:
    return [struct.unpack_from("=Q", body)[0] for body, _ in fake.queue("bench", queue)]


def sends(fake: Fake) -> list[Asked]:
    return [asked for asked in fake.asked if asked.code in (SEND, BATCH)]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_what_is_sent_is_whole_and_goes_round_the_queues(generator: Generator, binary: bool) -> None:
    with Fake() as fake:
        result = run(generator, fake, "send", messages=10, window=1, **({"binary": True} if binary else {}))
    assert [numbers(fake, queue) for queue in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert {asked.binary for asked in fake.asked} == {binary}
    assert {(asked.code, asked.ext["a"], asked.ext["b"]) for asked in sends(fake)} == {(SEND, "bench", "bench")}
    for number in range(10):
        body, raw = fake.queue("bench", number % 4)[number // 4]
        assert len(body) == SIZE
        assert body[12:].isalpha()
        properties = properties_of(raw)
        assert re.fullmatch(r"[0-9A-F]{16}", properties["UNIQ_KEY"][:16])
        assert (int(properties["UNIQ_KEY"][16:], 16), properties["WAIT"]) == (number, "true")
    assert (result["messages"], result["requests"], result["samples"], result["complete"]) == (10, 10, 10, True)


@pytest.mark.parametrize("backwards", [False, True])
def test_connections_and_windows_are_what_was_asked_for(generator: Generator, backwards: bool) -> None:
    with Fake(backwards=backwards) as fake:
        result = run(generator, fake, "send", messages=500, connections=3, window=7)
    opaques = [(asked.connection, asked.opaque) for asked in sends(fake)]
    assert len(set(opaques)) == len(opaques) == 500
    assert len({connection for connection, _ in opaques}) == 3
    assert {len(str(opaque)) for _, opaque in opaques} == {7}
    assert sorted(number for queue in range(4) for number in numbers(fake, queue)) == list(range(500))
    assert (result["messages"], len(result["slice_rates"])) == (500, 10)


def test_as_much_is_under_way_as_the_window_says(generator: Generator) -> None:
    def silent(asked: Asked, answer: Answer) -> Answer:
        return replace(answer, copies=0) if asked.code == SEND else answer

    with Fake(wrong=silent) as fake, pytest.raises(LoadError, match="after 0 messages"):
        run(generator, fake, "send", messages=100, connections=2, window=7, deadline_s=0.5)
    assert sorted(Counter(asked.connection for asked in sends(fake)).values()) == [7, 7]


def test_the_warm_up_is_sent_and_not_counted(generator: Generator) -> None:
    with Fake() as fake:
        result = run(generator, fake, "send", messages=100, warm_up=40, window=1)
    assert len(sends(fake)) == 140
    assert (result["messages"], result["requests"], result["samples"]) == (100, 100, 100)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_batches_are_whole(generator: Generator, binary: bool) -> None:
    with Fake() as fake:
        result = run(generator, fake, "batch", messages=320, batch=32, window=2, **({"binary": True} if binary else {}))
    assert {(asked.code, asked.ext["i"], asked.ext["m"]) for asked in sends(fake)} == {(BATCH, "WAIT\1true", "true")}
    assert sorted(number for queue in range(4) for number in numbers(fake, queue)) == list(range(320))
    assert numbers(fake, 0)[:32] == list(range(32))
    for body, raw in fake.queue("bench", 0):
        assert len(body) == SIZE
        assert int(properties_of(raw)["UNIQ_KEY"][16:], 16) == struct.unpack_from("=Q", body)[0]
    assert (result["messages"], result["requests"]) == (320, 10)


def test_numbers_go_on_where_the_topic_ends(generator: Generator) -> None:
    with Fake() as fake:
        fake.fill(100)
        run(generator, fake, "send", messages=8)
    assert [numbers(fake, queue)[25:] for queue in range(4)] == [[100, 104], [101, 105], [102, 106], [103, 107]]


def test_a_topic_that_the_nameserver_does_not_make_is_made_at_the_broker(generator: Generator) -> None:
    with Fake(topics={"TBW102": 8}) as fake:
        run(generator, fake, "send", messages=6, queues=3)
    assert fake.topics["bench"] == 3
    assert [numbers(fake, queue) for queue in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_pulling_takes_everything_of_the_first_queues(generator: Generator) -> None:
    for binary in (False, True):
        with Fake() as fake:
            fake.fill(1000)
            result = run(generator, fake, "pull", messages=500, queues=2, warm_up=0, **({"binary": True} if binary else {}))
        pulls = [(asked.ext["queueId"], int(asked.ext["queueOffset"])) for asked in fake.asked if asked.code == PULL]
        assert sorted(pulls) == [(queue, offset) for queue in "01" for offset in range(0, 250, 32)]
        assert len({asked.connection for asked in fake.asked if asked.code == PULL}) == 1
        assert {asked.ext["maxMsgNums"] for asked in fake.asked if asked.code == PULL} == {"32"}
        # The last answer of each queue goes beyond what was wanted.
        assert (result["messages"], result["pulled"], result["requests"], result["complete"]) == (500, 500, 16, True)


def test_pulls_from_anywhere_stay_within_the_queues(generator: Generator) -> None:
    with Fake() as fake:
        fake.fill(4000)
        result = run(generator, fake, "anywhere", messages=200, warm_up=20, window=1)
    pulls = [(int(asked.ext["queueId"]), int(asked.ext["queueOffset"])) for asked in fake.asked if asked.code == PULL]
    assert len(pulls) == 220
    assert len(set(pulls)) > 180
    assert {queue for queue, _ in pulls} == {0, 1, 2, 3}
    assert min(offset for _, offset in pulls) < 100 < 868 < max(offset for _, offset in pulls) <= 968
    assert (result["messages"], result["samples"], result["pulled"]) == (200, 200, 200 * 32)


def at(code: int, number: int, change: Callable[[Answer], Answer]) -> Callable[[Asked, Answer], Answer]:
    """Change the `number`-th answer to requests of a code."""
    seen = [0]

    def wrong(asked: Asked, answer: Answer) -> Answer:
        seen[0] += asked.code == code
        return change(answer) if asked.code == code and seen[0] == number else answer

    return wrong


def with_ext(**ext: str) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, ext={**answer.ext, **ext})


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize(
    ("code", "number", "change", "words"),
    [
        (SEND, 3, lambda answer: replace(answer, code=2, remark="[TIMEOUT_CLEAN_QUEUE]broker busy"), "a send is answered by 2: [TIMEOUT"),
        (SEND, 3, lambda answer: replace(answer, opaque=answer.opaque + 1), "which nobody asked"),
        (SEND, 3, lambda answer: replace(answer, opaque=7), "an answer to 7, which nobody asked"),
        (SEND, 3, lambda answer: replace(answer, copies=2), "which nobody asked"),
        (SEND, 20, lambda answer: replace(answer, tail=b"\0"), "more answers than requests"),
        (SEND, 3, lambda answer: replace(answer, flag=0), "a request of code 0 came"),
        (SEND, 3, lambda answer: replace(answer, ext={}), "an answer without queueId"),
        (SEND, 3, with_ext(queueId="0"), "sent to queue 2, stored in 0"),
        (SEND, 6, with_ext(queueOffset="0"), "offset 0 of queue 1 after 0"),
        (SEND, 6, with_ext(queueOffset="5"), "offset 5 of queue 1, which has been sent less"),
        (SEND, 6, with_ext(queueOffset="x"), "queueOffset is no number: x"),
        (SEND, 6, with_ext(msgId="7F00"), "not the identities of 1 messages: 7F00"),
        (ROUTE, 1, lambda answer: replace(answer, body=b"{}"), "a route without a broker"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_may_not_be_answered_ends_a_run_of_sends(
    generator: Generator, binary: bool, code: int, number: int, change: Callable[[Answer], Answer], words: str
) -> None:
    with Fake(wrong=at(code, number, change)) as fake, pytest.raises(LoadError, match=re.escape(words)):
        run(generator, fake, "send", messages=20, window=1, **({"binary": True} if binary else {}))


def test_what_was_answered_must_be_there_in_the_end(generator: Generator) -> None:
    def lose(asked: Asked, answer: Answer) -> Answer:
        lost = asked.code == MAX_OFFSET and asked.ext["queueId"] == "3" and len(sends(fake)) == 20
        return with_ext(offset="4")(answer) if lost else answer

    with Fake(wrong=lose) as fake, pytest.raises(LoadError, match="queue 3 ends at 4 instead of 5"):
        run(generator, fake, "send", messages=20, window=1, deadline_s=0.5)


def test_what_is_still_on_its_way_is_waited_for(generator: Generator) -> None:
    asked_for: list[int] = []

    def delay(asked: Asked, answer: Answer) -> Answer:
        if asked.code != MAX_OFFSET or asked.ext["queueId"] != "0":
            return answer
        asked_for.append(int(answer.ext["offset"]))
        # Too little the first time, and twice behind the last send.
        return with_ext(offset=str(asked_for[-1] - 3))(answer) if len(asked_for) in (1, 4, 5) else answer

    with Fake(wrong=delay) as fake:
        fake.fill(40)
        run(generator, fake, "send", messages=20, window=1)
    # Before the run until two answers agree, behind it until all is there.
    assert asked_for == [10, 10, 10, 15, 15, 15]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_ext(msgId="7F000001000051AF0000000000000000"), "not the identities of 10 messages"),
        (with_ext(msgId=",".join(["7F000001000051AF0000000000000000"] * 10)), "not the identities of 10 messages"),
        (with_ext(queueOffset="1"), "offset 1 of queue 1, which has been sent less"),
    ],
)
def test_what_may_not_be_answered_ends_a_run_of_batches(generator: Generator, change: Callable[[Answer], Answer], words: str) -> None:
    with Fake(wrong=at(BATCH, 2, change)) as fake, pytest.raises(LoadError, match=re.escape(words)):
        run(generator, fake, "batch", messages=40, batch=10, window=1)


def test_a_header_of_its_own_kind_may_be_answered_by_json_and_not_the_reverse(generator: Generator) -> None:
    """RocketMQ 5.3.3 answers sends with binary headers by JSON; clients that know only JSON cannot read anything else."""

    def change(asked: Asked, answer: Answer) -> Answer:
        return replace(answer, binary=not answer.binary) if asked.code == SEND else answer

    with Fake(wrong=change) as fake:
        assert run(generator, fake, "send", messages=20, binary=True)["messages"] == 20
        with pytest.raises(LoadError, match="a binary header answers one of JSON"):
            run(generator, fake, "send", messages=20)


def flipped(position: int) -> Callable[[Answer], Answer]:
    """One bit of the messages that are pulled."""
    return lambda answer: replace(answer, body=answer.body[:position] + bytes([answer.body[position] ^ 1]) + answer.body[position + 1 :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda answer: replace(answer, code=19, remark="NO_NEW"), "a pull is answered by 19: NO_NEW"),
        (flipped(3), "a message of"),
        (flipped(4), "a message with the magic"),
        (flipped(11), "not that of its checksum"),
        (flipped(15), "a message of queue 1 instead of 0"),
        (flipped(27), "offset 33 of queue 0 instead of 32"),
        (flipped(87), "with a body of 129"),
        (flipped(88), "a body that was never sent"),
        (flipped(88 + SIZE), "a message of another topic"),
        (flipped(88 + SIZE + 1), "a message of another topic"),
        (flipped(88 + SIZE + 1 + 5 + 2 + 3), "a message without its key"),
        (flipped(88 + 40), "not that of its checksum"),
        (flipped(88 + SIZE + 1 + 5 + 1), "of properties"),
        (lambda answer: replace(answer, body=answer.body[:-1]), "a message of"),
        (lambda answer: replace(answer, body=b""), "0 messages in an answer"),
        (with_ext(nextBeginOffset="65"), "go on at 65 after 32 messages from 32"),
        (with_ext(maxOffset="5"), "a queue that ends before what was pulled"),
        (with_ext(minOffset=""), "minOffset has 0 digits"),
        (with_ext(suggestWhichBrokerId="x"), "suggestWhichBrokerId is no number"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_what_may_not_be_pulled_ends_the_run(generator: Generator, change: Callable[[Answer], Answer], words: str) -> None:
    with Fake(topics={"bench": 1}, wrong=at(PULL, 2, change)) as fake:
        fake.fill(300)
        with pytest.raises(LoadError, match=re.escape(words)):
            run(generator, fake, "pull", messages=300, queues=1)


def test_a_message_that_is_in_two_queues_ends_the_run(generator: Generator) -> None:
    with Fake() as fake:
        fake.fill(400)
        fake.queue("bench", 1)[50] = fake.queue("bench", 0)[5]
        with pytest.raises(LoadError, match="message 20 twice"):
            run(generator, fake, "pull", messages=400)


def test_a_run_needs_the_queues_and_the_messages(generator: Generator) -> None:
    with Fake() as fake:
        fake.fill(100)
        for mode, options, words in (
            ("send", {"queues": 5}, "bench has 4 queues of 5"),
            ("pull", {"messages": 200}, "queue 0 holds 25 messages only"),
            ("anywhere", {}, "queue 0 holds 25 messages only"),
            ("send", {"topic": "other"}, "the nameserver knows neither other nor a broker"),
        ):
            with pytest.raises(LoadError, match=words):
                run(generator, fake, mode, **options)


def test_the_deadline_ends_a_run_that_hangs(generator: Generator) -> None:
    with (
        Fake(wrong=at(SEND, 5, lambda answer: replace(answer, copies=0))) as fake,
        pytest.raises(LoadError, match=r"deadline came first \(after 4 messages\)"),
    ):
        run(generator, fake, "send", messages=20, window=1, deadline_s=0.5)


def test_wrong_use_is_explained(generator: Generator) -> None:
    for mode, options, words in (
        ("send", {"size": 11}, "at least 12"),
        ("send", {"topic": "a b"}, "not a word"),
        ("batch", {"messages": 10, "batch": 3}, "not a multiple of --batch"),
        ("batch", {"messages": 20000, "batch": 20000, "size": 1000}, "over the 4 MiB"),
        ("pull", {"queues": 2, "connections": 3}, "more than there are queues"),
        ("send", {"queues": 0}, "number out of range"),
    ):
        with pytest.raises(LoadError, match=words):
            generator.run(f"rocketmq-{mode}", "127.0.0.1:1", deadline_s=1, **options)


def test_what_others_publish_is_pulled_as_it_comes(generator: Generator) -> None:
    """Bodies and properties are whatever they are; a queue that has nothing is asked again."""
    with Fake(wrong=lambda asked, answer: replace(answer, code=19) if asked.code == PULL and not answer.body else answer) as fake:
        for queue in range(3):
            fake.queue("bench", queue).extend([(b"y" * SIZE, b"")] * 50)
        result = run(generator, fake, "pull", messages=150, foreign=True, ready=True)
    assert (result["messages"], result["pulled"], result["complete"]) == (150, 150, True)
    assert {asked.ext["queueId"] for asked in fake.asked if asked.code == PULL} == {"0", "1", "2", "3"}


def test_of_what_others_publish_something_may_be_wrong_too(generator: Generator) -> None:
    with Fake() as fake, pytest.raises(LoadError, match="with a body of 100"):
        fake.queue("bench", 0).append((b"y" * 100, b""))
        run(generator, fake, "pull", messages=1, foreign=True)
    with pytest.raises(LoadError, match="only for rocketmq-pull"):
        generator.run("rocketmq-send", "127.0.0.1:1", foreign=True)
    with pytest.raises(LoadError, match="not with --foreign"):
        generator.run("rocketmq-pull", "127.0.0.1:1", foreign=True, warm_up=1)
