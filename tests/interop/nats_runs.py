"""Runs of messages in one write, with something to be said in the middle of them: the words of cases in `test_nats_dialogues.py`.

S stands for the word that begins the case's own subjects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.interop.nats_dialogue import QUIET, wishes

if TYPE_CHECKING:
    from tests.interop.nats_dialogue import Stage

__all__ = ["BOUND_RUNS", "BOUND_WISHES", "RUNS", "RUN_WISHES", "a_carriage_return_within_a_line"]

VERBOSE = wishes(pedantic=False, headers=True, no_responders=True)
STRICT = wishes(verbose=False, pedantic=True, headers=True, no_responders=True)
BOTH = wishes(headers=True, no_responders=True)
DEAF = wishes(pedantic=False, headers=True, no_responders=True, echo=False)
# By name: who wishes what says each of the runs.
RUN_WISHES: Final = {"verbose": VERBOSE, "pedantic": STRICT, "verbose and pedantic": BOTH, "verbose and deaf": DEAF}
BOUND_WISHES: Final = {"quiet": QUIET, "verbose": VERBOSE, "pedantic": STRICT, "verbose and pedantic": BOTH}
RUNS: dict[str, bytes] = {
    "messages for nobody": b"PUB S.a 1\r\n1\r\n" * 5,
    "messages of its own": b"SUB S.a 1\r\n" + b"PUB S.a 1\r\n1\r\nPUB S.b 1\r\n2\r\n" * 3 + b"PUB S.b 1\r\n3\r\n" * 3,
    "messages of its own in a group": b"SUB S.a q 1\r\n" + b"PUB S.b 1\r\n1\r\nPUB S.a 1\r\n2\r\n" * 3,
    "messages of its own with headers": b"SUB S.a 1\r\n" + b"HPUB S.a 12 13\r\nNATS/1.0\r\n\r\nx\r\nPUB S.a 0\r\n\r\n" * 2,
    "messages of its own up to a number": b"SUB S.a 1\r\nUNSUB 1 2\r\n" + b"PUB S.b 1\r\n1\r\nPUB S.a 1\r\n2\r\n" * 4,
    "wildcards in the middle": b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB S.* 1\r\n2\r\nPUB S.b 1\r\n3\r\nPUB S.> 1\r\n4\r\nPUB S.c 1\r\n5\r\n",
    "parts of tokens that look like wildcards": b"SUB S.> 1\r\nPUB S.a* 1\r\n1\r\nPUB S.>b 1\r\n2\r\nPUB S.** 1\r\n3\r\nPUB S.>> 1\r\n4\r\n",
    "empty tokens in the middle": b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB S..a 1\r\n2\r\nPUB S.b 1\r\n3\r\nPUB S. 1\r\n4\r\nPUB .S 1\r\n5\r\n",
    "the servers' own in the middle": b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB _GR_.x 1\r\n2\r\nPUB S.b 1\r\n3\r\nPUB S.a $JS.ACK.x 1\r\n4\r\nPUB S.c 1\r\n5\r\n",
    "all of it in the middle": b"SUB S.a 1\r\nPUB S.b 1\r\n1\r\nPUB S.* _R_.x 1\r\n2\r\nPUB S.a 1\r\n3\r\nPUB _GR_..x 1\r\n4\r\nPUB S.* 1\r\n5\r\nPUB S.a 1\r\n6\r\n",
    "questions that nobody hears in the middle": b"SUB S.in.* 1\r\nPUB S.a 1\r\n1\r\nPUB S.a S.in.1 1\r\n2\r\nPUB S.in.x 1\r\n3\r\nPUB S.a S.in.2 1\r\n4\r\nPUB S.a 1\r\n5\r\n",
    "questions that only it hears": b"SUB S.in.* 1\r\nSUB S.a 2\r\n"
    + b"PUB S.b 1\r\n1\r\nPUB S.a S.in.1 1\r\n2\r\n" * 2
    + b"PUB S.b 1\r\n3\r\n",
    "questions to wildcards": b"SUB S.in.* 1\r\nPUB S.a 1\r\n1\r\nPUB S.* S.in.1 1\r\n2\r\nPUB S.b 1\r\n3\r\n",
    "other commands in the middle": b"PUB S.a 1\r\n1\r\nSUB S.a 1\r\nPUB S.a 1\r\n2\r\nPING\r\nPUB S.a 1\r\n3\r\nUNSUB 1\r\nPUB S.a 1\r\n4\r\n",
    "a bad subscription in the middle": b"PUB S.a 1\r\n1\r\nSUB S..a 1\r\nPUB S.a 1\r\n2\r\n",
    "other wishes in the middle": b"PUB S.* 1\r\n1\r\n"
    + wishes(verbose=True, pedantic=False)
    + b"PUB S.* 1\r\n2\r\n"
    + QUIET
    + b"PUB S.* 1\r\n3\r\n",
    "an unknown word at the end": b"SUB S.a 1\r\nPUB S.a 1\r\n1\r\nPUB S.b 1\r\n2\r\nNOPE\r\nPUB S.a 1\r\n3\r\n",
    "a size that is none at the end": b"SUB S.a 1\r\nPUB S.a 1\r\n1\r\nPUB S.* 1\r\n2\r\nPUB S.a x\r\n3\r\n",
    "a payload that is too large at the end": b"PUB S.a 1\r\n1\r\nPUB S.* 1\r\n2\r\nPUB S.* 1048577\r\n3\r\n",
    "a payload that is longer than it says at the end": b"PUB S.a 1\r\n1\r\nPUB S.* 1\r\n23\r\n",
    "a line that is too long at the end": b"PUB S.a 1\r\n1\r\nPUB S." + b"a" * 4200 + b" 1\r\n2\r\n",
}

# By somebody who may not publish everything, or only answer.
BOUND_RUNS: dict[str, bytes] = {
    "what is forbidden in the middle": b"SUB S.a 1\r\nPUB S.a 1\r\n1\r\nPUB no.a 1\r\n2\r\nPUB S.b 1\r\n3\r\nPUB no.a 1\r\n4\r\nPUB no.b 1\r\n5\r\nPUB S.a 1\r\n6\r\n",
    "what is forbidden and wrong in the middle": b"SUB S.> 1\r\nPUB S.a 1\r\n1\r\nPUB no.* 1\r\n2\r\nPUB S.* 1\r\n3\r\nPUB no.a _R_.x 1\r\n4\r\nPUB S.a _R_.x 1\r\n5\r\nPUB S.b 1\r\n6\r\n",
    "forbidden questions in the middle": b"SUB S.in.* 1\r\nPUB S.a S.in.1 1\r\n1\r\nPUB no.a S.in.2 1\r\n2\r\nPUB S.b 1\r\n3\r\n",
    "nothing but what is forbidden": b"PUB no.a 1\r\n1\r\n" * 3,
}


def a_carriage_return_within_a_line(stage: Stage) -> None:
    """Say it in a line without a message, and in one with a message."""
    word = stage.word.encode()
    for name, said in (("SUB", b"SUB %b\rb 1\r\n"), ("PUB", b"PUB %b\rb 1\r\nx\r\n")):
        stage.connect(name, connect=QUIET).say(said % word)
