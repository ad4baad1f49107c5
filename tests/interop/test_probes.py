"""The conformance probes against both servers, compared with what nsqd 1.3.0 answered when the transcripts were made.

Every difference of polymq is listed in allowed_differences.toml, with polymq's own answer and the reason; one that is not
listed fails, and so does one that is listed and no longer there. nsqd, the control, may differ in nothing: if it does, the
masks below miss something that changes from run to run.

The probes and the transcripts are in the folder nsq of the conformance material (conformance.py).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.conformance import material

if TYPE_CHECKING:
    from tests.interop.servers import Running

ALLOWED = Path(__file__).with_name("allowed_differences.toml")
PROBE_TIMEOUT_S = 120

# What differs from run to run, or from machine to machine, on one and the same server.
MASKS = (
    (r"\bh\d{1,5}(?=[ &x])", "<R>"),
    # The width of a column follows the length of that name, which is made of the time.
    (r"\[<R> +\]", "[<R>]"),
    (r'"start_time":\d+', '"start_time":<TIME>'),
    (r"start_time \d{4}-\d\d-\d\dT[0-9:]+(Z|[+-]\d\d:\d\d)", "start_time <TIME>"),
    (r"uptime \S+", "uptime <TIME>"),
    (r'"(tcp_port|http_port)":\d+', r'"\1":<PORT>'),
    (r'"hostname":"[^"]*"', '"hostname":"<HOST>"'),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<PORT>"),
    (r'"((?:heap|gc|next)_\w+)":\d+', r'"\1":<N>'),
    (r"(?m)^( +(?:heap|gc|next)_\w+\s+)\d+$", r"\1<N>"),
    (r"\(built w/[a-z]+[0-9.]+\)", "(built w/<RUNTIME>)"),
    # A number that nsqd makes from the machine's name.
    (r"(?m)^(GET +/config/id +200 \{.*\}) \d+$", r"\1 <ID>"),
)
REQUEST = re.compile(r"^(?:GET|HEAD|POST|PUT|OPTIONS) +/")
HEADERS = re.compile(r"\{'.*?'\}")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One case of a probe: what was asked, and what came back (masked)."""

    case: str
    answer: str


def masked(text: str) -> str:
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text)
    return text


def sorted_headers(found: re.Match[str]) -> str:
    """The order of HTTP headers means nothing."""
    return str(dict(sorted(ast.literal_eval(found.group()).items())))


def tcp_exchanges(text: str) -> list[Exchange]:
    """One line is one exchange: `case -> frames`."""
    lines = [line.partition(" -> ") for line in masked(text).splitlines()]
    return [Exchange(case.strip(), answer.strip()) for case, _, answer in lines]


def http_exchanges(text: str) -> list[Exchange]:
    """A line that starts with a method starts an exchange; bodies go on over the following lines."""
    joined: list[str] = []
    for line in masked(text).splitlines():
        if REQUEST.match(line) or not joined:
            joined.append(line)
        else:
            joined[-1] += "\n" + line.rstrip()
    pairs = [re.split(r" +(?=\d{3} \{)| (?=\w+\()", entry, maxsplit=1) for entry in joined]
    return [Exchange(re.sub(" +", " ", pair[0]), HEADERS.sub(sorted_headers, pair[-1], count=1).strip()) for pair in pairs]


def differences(expected: list[Exchange], found: list[Exchange]) -> list[tuple[Exchange, Exchange]]:
    """Pairs of exchanges that are not equal; the probes ask the same questions in the same order."""
    assert [each.case for each in found] == [each.case for each in expected], "the probe did not come to its end"
    return [pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]]


def run_probe(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(material(f"nsq/{name}")), *arguments], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def allowed(probe: str) -> dict[str, str]:
    """The listed differences of one probe: case and polymq's answer."""
    with ALLOWED.open("rb") as file:
        listed = [each for each in tomllib.load(file).get("difference", []) if each["probe"] == probe]
    assert all(each["reason"] for each in listed)
    found = {each["case"]: each["answer"].strip() for each in listed}
    assert len(found) == len(listed), "a case is listed twice"
    return found


def judge(server: Running, probe: str, different: list[tuple[Exchange, Exchange]]) -> None:
    listed = allowed(probe) if server.kind == "polymq" else {}
    unlisted = [
        f"{expected.case}\n  nsqd 1.3.0: {expected.answer}\n  {server.kind}: {found.answer}"
        for expected, found in different
        if listed.get(found.case) != found.answer
    ]
    assert unlisted == [], "\n".join(["", *unlisted])
    gone = set(listed) - {found.case for _, found in different}
    assert gone == set(), "these answers are nsqd's now: take them off the list"


def test_tcp_answers_are_those_of_nsqd(server: Running) -> None:
    expected = tcp_exchanges(material("nsq/golden_v1.3.0.txt").read_text(encoding="utf-8"))
    found = tcp_exchanges(run_probe("probe.py", server.tcp, server.http.partition(":")[2]))
    judge(server, "tcp", differences(expected, found))


def test_http_answers_are_those_of_nsqd(server: Running) -> None:
    host, _, http_port = server.http.partition(":")
    expected = http_exchanges(material("nsq/golden_http_v1.3.0.txt").read_text(encoding="utf-8"))
    found = http_exchanges(run_probe("probe_http.py", host, http_port, server.tcp.partition(":")[2]))
    judge(server, "http", differences(expected, found))


def test_a_difference_is_seen() -> None:
    golden = "## PUB\nPUB size 0   -> ERR 'E_BAD_MESSAGE PUB invalid message body size 0' [CLOSED]\n"
    changed = golden.replace("[CLOSED]", "[open]")
    assert differences(tcp_exchanges(golden), tcp_exchanges(golden)) == []
    ((expected, found),) = differences(tcp_exchanges(golden), tcp_exchanges(changed))
    assert (expected.case, found.answer) == ("PUB size 0", "ERR 'E_BAD_MESSAGE PUB invalid message body size 0' [open]")


def test_the_order_of_headers_and_the_time_are_no_difference() -> None:
    one = "GET    /ping     200 {'Content-Type': 'text/plain', 'X-Nsq-Content-Type': 'nsq'} {\"start_time\":1}\nuptime 3s\n"
    other = "GET    /ping     200 {'X-Nsq-Content-Type': 'nsq', 'Content-Type': 'text/plain'} {\"start_time\":2}\nuptime 9s\n"
    assert http_exchanges(one) == http_exchanges(other)
    assert http_exchanges(one) != http_exchanges(other.replace("200", "404"))
    assert [each.case for each in http_exchanges(one)] == ["GET /ping"]
