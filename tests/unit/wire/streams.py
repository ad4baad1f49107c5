"""What nsqd 1.3.0 sent inside compression, and how a stream is given to a layer.

Captured from nsqd 1.3.0 (go-nsq's snappy 0.0.4, Go 1.26) with a script that said IDENTIFY with the compression, then
PUB of BODY, then SUB and RDY 1, and wrote down each read.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.wire.layers import Layer, LayerStack

OK = bytes.fromhex("00000006000000004f4b")
BODY = b"polymq " * 285 + b"12345"
SNAPPY_READS = (
    bytes.fromhex("ff060000734e61507059010e000026982bcf00000006000000004f4b"),
    bytes.fromhex("010e000026982bcf00000006000000004f4b"),
    bytes.fromhex(
        "009b0000fa3303f7f20fc0000007ee0000000218e9f2bd6b464f07000131386132613762353139323639303030706f6c796d7120706f6c796d71"
        "2070fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e"
        "00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00fe0e00ee0e00103132333435"
    ),
)
DEFLATE_READS = (
    bytes.fromhex("6260606063606060f0f706000000ffff000000ffff"),
    bytes.fromhex("42b000000000ffff"),
    bytes.fromhex(
        "42b000000000ffff6260607fc7c0c0c024f1f2d3de4db7435631301a5a241a259a2799199b9b99591a181814e4e754e6162a8c52a3d428354a8d"
        "52a3d428353429432363135300000000ffff"
    ),
)


def take(layer: Layer | LayerStack, data: bytes) -> bytes:
    """Have a layer receive everything, as its user has to."""
    plain = layer.receive(data)
    while layer.holding:
        plain += layer.receive(b"")
    return plain


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream into pieces."""
    places = sorted(each % (len(data) + 1) for each in cuts)
    return [data[start:stop] for start, stop in itertools.pairwise([0, *places, len(data)])]
