"""The page docs/CONVERSIONS.md: every cell is what a reader got of a sample that a publisher of the row's protocol has sent."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.limits import MESSAGE_SIZE_BYTES_MAX, NAME_SIZE_BYTES_MAX
from polymq.protocols.phpmq import frames as phpmq
from polymq.protocols.rocketmq.properties import SYSTEM_NAMES
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.server.spelling import SPELLERS
from polymq.wire.left_out import HEADER, KEY
from tests.conversions.publishers import FIELDS, PUBLISHERS, Sample
from tests.conversions.world import NAMES, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conversions.world import Seen

__all__ = ["page"]

_NOTHING: Final = "–"  # the reader's protocol has no such field
_NONE: Final = "none"
_UNITS: Final = {1: "to the ns", 1_000: "to the µs", 1_000_000: "to the ms"}
_BODIES: Final = (b"\0", bytes(range(256)), bytes(range(256)) * 4096)
_TTL_S: Final = 10
_DELAY_S: Final = 2
_REQUEUES: Final = 3
_SHOWN_MAX: Final = 40

_HEAD: Final = """# What becomes of a message's fields between protocols

Written by `make conversions`, which sends each sample through the real decoder of the protocol that publishes, the core, and the real encoder of the one that reads
(`tests/conversions`); a test compares this page with what would be written. Rows publish, columns read; Spark reads the log.

A record of the log has for everybody: body, time, expiry, key, headers. What else a protocol knows of a message is kept for that protocol alone, so what goes out by
the protocol by which it came is as it was. Conversion never refuses a message: what a reader's protocol cannot say is left out and counted.

In the tables – means that the reader's protocol has no such field, *none* that it has, and that it is empty.
"""


def page() -> str:
    """Write the page. Cost: some seconds."""
    parts = [_HEAD, *_fields(), *_left_out(), *_names()]
    return "\n".join(parts)


# -- fields ------------------------------------------------------------------------------------------------------------


def _fields() -> Iterator[str]:
    yield _section(
        "Body",
        f"Samples: a zero byte, all 256 byte values, and those for a mebibyte. A body of any protocol has at most {MESSAGE_SIZE_BYTES_MAX:,} bytes, "
        "which the clients of all of them take; lower limits that can be set (`nsq.max_msg_size` and its like) are for publishing.",
        _body,
    )
    yield _section(
        "Body that a RocketMQ client has packed",
        "Java's clients do so with more than 4 KiB. RocketMQ's readers get it as it came, everybody else unpacked; one that is damaged, or has more "
        "than `rocketmq.max_message_size` bytes when it is unpacked, everybody gets as it came.",
        _packed,
        only=tuple(name for name in PUBLISHERS if "packed" in FIELDS[name]),
    )
    yield _section(
        "Time", "When the message was stored. RocketMQ's clients also get when it was born: that of others is when it was stored.", _time
    )
    yield _section(
        "Key",
        "Sample: `order 7`. RocketMQ's property KEYS, as a whole. Groups that keep the order of keys keep that of these as well.",
        _key,
    )
    yield _section(
        "Tags", "Sample: `TagA`, by NATS as a header `TAGS`. RocketMQ's readers ask with a filter for it and with one for another.", _tags
    )
    yield _section(
        "Headers",
        "Samples: `colour` = `blue` and `size` = `groß`. RocketMQ's are the properties that users set; those of the system are kept for RocketMQ: "
        + ", ".join(f"`{name}`" for name in sorted(SYSTEM_NAMES))
        + ".",
        _headers,
    )
    yield _section(
        "Reply",
        "Sample: `inbox.7`. NATS's reply subject is everybody else's header `reply-to`, and such a header is NATS's reply subject.",
        _reply,
    )
    yield _section(
        "Attempts",
        "Of a message that a consumer gets, gives back, and gets again. Groups count them, whoever has published. PHPMQ's consumers give messages back, too, "
        "but are not told how often.",
        _attempts,
    )
    yield _section(
        "Requeued by PHPMQ",
        f"A message that a client of PHPMQ has put at the end of its queue {_REQUEUES} times (005) is appended anew each time. What is appended is for the queue alone: "
        "everybody else gets one message. (A copy that lasts longer than the message that it is made of is shown to readers of the log, too; a group that is replayed, and a channel made while its topic is paused, get all copies.) A group that NSQ's channel and PHPMQ's queue share goes on counting its attempts.",
        _requeued,
    )
    yield _section(
        "Lifetime",
        f"Sample: a TTL of {_TTL_S} s, which PHPMQ alone can say; consumers ask after 4 s, or after {_TTL_S + 1} s.",
        _lifetime,
    )
    yield _section(
        "Delay",
        f"Sample: {_DELAY_S} s; by RocketMQ as a timer, its levels are the same; NATS and PHPMQ cannot say one. What is delayed is not in the log before it is due.",
        _delay,
    )


def _section(title: str, text: str, cell: Callable[[str, str], str], *, only: tuple[str, ...] = tuple(PUBLISHERS)) -> str:
    rows = [[name, *[cell(name, reader) for reader in NAMES]] for name in only]
    return f"## {title}\n\n{text}\n\n" + _table(["", *NAMES], rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _sent(publisher: str, sample: Sample) -> World:
    """A world in which a sample was published, as far as the protocol can say it."""
    world = World()
    world.clock.now_ns = 1_234_567_891
    can = FIELDS[publisher]
    PUBLISHERS[publisher](
        world,
        replace(
            sample,
            key=sample.key if "key" in can else "",
            tags=sample.tags if "tags" in can else "",
            headers=sample.headers if "headers" in can else (),
            reply=sample.reply if "reply" in can else "",
            delay_s=sample.delay_s if "delay_s" in can else 0,
        ),
    )
    return world


def _got(publisher: str, reader: str, sample: Sample) -> Seen:
    (seen,) = _sent(publisher, sample).read(reader)
    return seen


def _body(publisher: str, reader: str) -> str:
    same = all(_got(publisher, reader, Sample(body)).body == body for body in _BODIES)
    return "byte by byte" if same else "changed"


def _packed(publisher: str, reader: str) -> str:
    plain = b"body " * 1000
    packed = zlib.compress(plain)
    body = _got(publisher, reader, Sample(packed, packed=True)).body
    return "unpacked" if body == plain else "as it came" if body == packed else "changed"


def _time(publisher: str, reader: str) -> str:
    world = _sent(publisher, Sample())
    (seen,) = world.read(reader)
    if seen.time_ns is None:
        return _NOTHING
    now_ns = world.clock.wall_ns()
    return next((text for unit, text in _UNITS.items() if seen.time_ns == now_ns - now_ns % unit), "another time")


def _key(publisher: str, reader: str) -> str:
    seen = _got(publisher, reader, Sample(key="order 7"))
    if seen.headers is None:
        return _NOTHING
    if seen.key is None:
        return _NONE
    words = {"NATS": "header `KEYS: {}`", "RocketMQ": "property KEYS `{}`"}.get(reader, "key `{}`")
    return words.format(seen.key.decode())


def _tags(publisher: str, reader: str) -> str:
    world = _sent(publisher, Sample(tags="TagA"))
    (seen,) = world.read(reader)
    if seen.headers is None:
        return _NOTHING
    found = dict(seen.headers).get(b"TAGS")
    if reader == "RocketMQ":
        chosen = ", ".join(f"{tag}: {len(world.read(reader, tag=tag))}" for tag in ("TagA", "TagB"))
        return f"property TAGS {_shown(found)}; filters find of {chosen}"
    return _NONE if found is None else f"header `TAGS` {_shown(found)}"


def _shown(value: bytes | None) -> str:
    return _NONE if value is None else f"`{value.decode()}`"


def _headers(publisher: str, reader: str) -> str:
    seen = _got(publisher, reader, Sample(headers=(("colour", "blue"), ("size", "groß"))))
    if seen.headers is None:
        return _NOTHING
    return ", ".join(f"`{name.decode()}: {value.decode()}`" for name, value in seen.headers) or _NONE


def _reply(publisher: str, reader: str) -> str:
    seen = _got(publisher, reader, Sample(reply="inbox.7"))
    if seen.headers is None:
        return _NOTHING
    header = dict(seen.headers).get(b"reply-to")
    found = [f"reply {_shown(seen.reply)}"] if seen.reply is not None else []
    if header is not None:
        found.append(f"{'property' if reader == 'RocketMQ' else 'header'} `reply-to` {_shown(header)}")
    return " and ".join(found) or _NONE


def _attempts(publisher: str, reader: str) -> str:
    world = _sent(publisher, Sample())
    (seen,) = world.read(reader)
    if seen.attempts is None:
        return _NOTHING
    if reader == "RocketMQ":
        (message,) = world.pull()
        world.send_back(message)
        world.wait(2)
        (again,) = world.pull(topic="%RETRY%G")
        return f"{seen.attempts}, then {again.reconsume_times}"
    world.say(reader, b"REQ %b 0\n" % seen.id)
    (second,) = world.read(reader)
    return f"{seen.attempts}, then {second.attempts}"


def _requeued(publisher: str, reader: str) -> str:
    world = _sent(publisher, Sample())
    dispatched = world.read("PHPMQ")
    for _ in range(_REQUEUES):
        world.say("PHPMQ", phpmq.requeue(world.topic, dispatched[-1].id))
        dispatched += world.read("PHPMQ")
    found = dispatched if reader == "PHPMQ" else world.read(reader)
    return "once" if len(found) == 1 else f"{len(found)} times"


def _lifetime(publisher: str, reader: str) -> str:
    said = []
    for seconds in (4, _TTL_S + 1):
        world = World(waiting=True)
        PUBLISHERS[publisher](world, Sample(ttl_s=_TTL_S if "ttl_s" in FIELDS[publisher] else 0))
        heard = world.read(reader) if reader == "NATS" else []
        world.wait(seconds)
        world.go()
        found = world.read(reader)
        if heard:
            said.append("heard at once")
        elif not found:
            said.append("passed over")
        else:
            left = found[0].ttl_s
            said.append("there" if left is None else f"there, {left} s left" if left else "there, without an end")
    return said[0] if said[0] == said[1] else f"{said[0]}; {said[1]}"


def _delay(publisher: str, reader: str) -> str:
    world = _sent(publisher, Sample(delay_s=_DELAY_S))
    world.wait(_DELAY_S - 0.1)
    early = world.read(reader)
    world.wait(0.2)
    late = world.read(reader)
    return "when it is due" if not early and len(late) == 1 else "at once" if early else "never"


# -- what is left out --------------------------------------------------------------------------------------------------

# What RocketMQ can say and NATS perhaps not, and the other way: a header, beside a key or alone.
_TO_NATS: Final = (
    ("two words", "value", ""),
    ("größe", "L", ""),
    ("a:b", "value", ""),
    ("lines", "one\r\ntwo", ""),
    ("reply-to", "no subject", ""),
    ("reply-to", "$JS.ACK.x", ""),
    ("fine", "größe", "two\nlines"),
)
_TO_ROCKETMQ: Final = (
    ("empty", "", ""),
    ("control", "\x01", ""),
    ("control\x02", "value", ""),
    ("latin", "gr\udcf6\udcdfe", ""),
    ("UNIQ_KEY", "the system's", ""),
    ("KEYS", "order 7", ""),
    ("large", "x" * PROPERTIES_SIZE_BYTES_MAX, ""),
    ("fine", "größe", ""),
)


def _left_out() -> Iterator[str]:
    yield (
        "## What is left out\n\n"
        "Each time that a message goes out without its key or a header, `polymq_conversion_dropped_total` counts it, by reader's protocol. "
        "`polymq_conversion_passed_over_total` counts messages that are passed over as a whole: of those that are over, pulls of RocketMQ's; what is larger than any "
        "client takes; and what NATS' listeners did not hear because too many topics had something for them ([METRICS.md](METRICS.md)).\n\n"
        "NSQ and PHPMQ have neither keys nor headers: tags and replies are headers. Counted of a message with the key `order 7`, the tag `TagA`, the reply `inbox.7` and "
        "the headers `colour` and `size`, as far as its publisher can say them:\n\n" + _unsaid() + "\n"
        "NATS: a header's name is printable ASCII without blanks and colons; no value and no key has a line break; beside a key there is no header `KEYS`. A header `reply-to` that is no "
        f"subject for answers, or longer than {NAME_SIZE_BYTES_MAX} bytes, is a header like all others.\n\n"
        + _nasty("RocketMQ", "NATS", _TO_NATS)
        + "\nRocketMQ: names and values are UTF-8, not empty, and without the bytes 1 and 2; none is the system's; beside a key there is no header `KEYS`; all together have "
        f"at most {PROPERTIES_SIZE_BYTES_MAX:,} bytes, the key first, then headers in their order.\n\n"
        + _nasty("NATS", "RocketMQ", _TO_ROCKETMQ)
    )


def _unsaid() -> str:
    rows = []
    for publisher in PUBLISHERS:
        world = _sent(publisher, Sample(key="order 7", tags="TagA", reply="inbox.7", headers=(("colour", "blue"), ("size", "L"))))
        cells = []
        for reader in ("NSQ", "PHPMQ"):
            world.read(reader)
            cells.append(_counted(world, reader))
        rows.append([publisher, *cells])
    return _table(["", "NSQ", "PHPMQ"], rows)


def _counted(world: World, reader: str) -> str:
    counts = world.broker.left_out.of(reader.lower())
    found = [(counts[KEY], "key"), (counts[HEADER], "header" if counts[HEADER] == 1 else "headers")]
    return ", ".join(f"{count} {what}" for count, what in found if count) or _NOTHING


def _nasty(publisher: str, reader: str, samples: tuple[tuple[str, str, str], ...]) -> str:
    rows = []
    for name, value, key in samples:
        world = _sent(publisher, Sample(headers=((name, value),), key=key))
        (seen,) = world.read(reader)
        assert seen.headers is not None
        whole = [f"`{_printed(each)}: {_printed(text)}`" for each, text in seen.headers]
        whole += [f"key `{_printed(seen.key)}`"] if seen.key is not None else []
        whole += [f"reply `{_printed(seen.reply)}`"] if seen.reply is not None else []
        said = f"`{_printed(name)}: {_printed(value)}`" + (f", key `{_printed(key)}`" if key else "")
        rows.append([said, ", ".join(whole) or _NOTHING, _counted(world, reader)])
    return _table([f"{publisher} says", f"{reader} gets", "counted"], rows)


def _printed(value: str | bytes) -> str:
    """Show what cannot be seen, and not too much of it."""
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    text = data.decode("utf-8", "backslashreplace")
    text = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
    return text if len(text) <= _SHOWN_MAX else f"{text[:10]}… ({len(data):,} bytes)"


# -- names -------------------------------------------------------------------------------------------------------------

_TOPICS: Final = (
    "orders",
    "orders.eu-1",
    "orders#ephemeral",
    "two words",
    "größe",
    "a..b",
    "a.*",
    "100%",
    "100%25",
    "%RETRY%group",
    "line%0Abreak",
    "x" * 65,
    "x" * 128,
)


# `tests/unit/server/test_spelling.py` has a test for each of these cells.
_NAMING: Final = [
    [
        "NSQ",
        "those of letters and digits of ASCII and `.`, `_`, `-`, with or without `#ephemeral` at the end, of 64 bytes at most with that",
        "the topic's own",
    ],
    [
        "NATS",
        "all without blanks and other characters up to U+0020, and without tokens (what stands between dots) that are empty, `*` or `>`",
        "the topic's own",
    ],
    [
        "RocketMQ",
        "those of ASCII whose name there has 127 bytes at most, and begins with `%RETRY%` or `%DLQ%` only if they do (`%DLQ.a` does not)",
        (
            "letters, digits, `%`, `\\|`, `_` and `-` are themselves, all others `%` and two hexadecimal digits (`.` is `%2E`); a `%` that would be read as the beginning of one is `%25`; "
            "`%RETRY%` and `%DLQ%` at the beginning are themselves"
        ),
    ],
    [
        "PHPMQ",
        "all without control characters, but those with an escape that no queue needs",
        "the topic's own; `%` and two hexadecimal digits stand for a control character, or for a byte that is no UTF-8, or, as `%25`, for a `%` that would be read as such",
    ],
]


def _names() -> Iterator[str]:
    rows = []
    for topic in _TOPICS:
        cells = []
        for speller in SPELLERS.values():
            name = speller.spell(topic)
            assert name is None or speller.read(name) == topic
            cells.append(_NOTHING if name is None else f"`{_printed(name)}`")
        rows.append([f"`{_printed(topic)}`", *cells])
    yield (
        "## Names of topics\n\n"
        "A topic has one name in the log, of 1 to 255 bytes of UTF-8. Each protocol spells it by its own rules, so that every name of a protocol stands for one topic and every topic "
        "has at most one name in a protocol; – means that it has none there, and its clients do not see it. NSQ and NATS have no escapes: what their clients write today would become "
        "other topics. Wildcards are NATS's alone.\n\n"
        + _table(["", "which topics have a name there", "which name"], _NAMING)
        + "\n"
        + _table(["topic", *SPELLERS], rows)
    )
    yield (
        "Groups: an NSQ channel, a queue of PHPMQ and a group of RocketMQ on one topic are groups of their own, each with every message; a PHPMQ queue is the work group "
        "that `phpmq.group` names, and a NATS queue group is one if `nats.work_groups` names it. See [GLOSSARY.md](GLOSSARY.md).\n"
    )
