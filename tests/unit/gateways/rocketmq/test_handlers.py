from __future__ import annotations

from polymq.gateways.rocketmq.handlers import HANDLERS
from polymq.protocols.rocketmq.codes import RequestCode


def test_what_clients_cannot_do_without_is_taken_care_of() -> None:
    needed = {10, 11, 12, 14, 15, 17, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 46, 105, 310, 320, 361}
    assert needed <= set(HANDLERS)
    assert all(code in set(RequestCode) for code in HANDLERS)
