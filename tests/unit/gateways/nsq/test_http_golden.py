"""Every line of the transcript of a real nsqd, against our endpoints over the real core."""

from __future__ import annotations

from tests.unit.gateways.nsq.golden_requests import golden, requests, without_what_varies
from tests.unit.gateways.nsq.http_world import NsqWorld, message


def test_transcript_and_requests_belong_together() -> None:
    for (method, path, _), answer in zip(requests(), golden(), strict=True):
        if answer is not None:
            assert (method, without_what_varies(path)[:62]) == (answer[0], answer[1])


def test_answers_are_those_of_nsqd() -> None:
    world = NsqWorld()
    for (method, path, body), expected in zip(requests(), golden(), strict=True):
        answer = world.ask(method, path, body)
        if expected is None:
            # nsqd closes its socket with the body half read, and the client may lose the answer; ours is read.
            assert message(answer) == (413, "BODY_TOO_BIG")
            assert answer.headers["Connection"] == "close"
            continue
        headers = {name: value for name, value in answer.headers.items() if name not in ("Date", "Content-Length")}
        got = (method, expected[1], answer.status, headers, without_what_varies(answer.text))
        assert got == (*expected[:4], without_what_varies(expected[4]))
        assert list(headers) == list(expected[3])
