"""Layers on top of one another."""

from __future__ import annotations

import zlib

from polymq.limits import LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.deflate import DeflateLayer
from polymq.wire.layers import LayerStack
from tests.unit.wire.rot import Rot


def test_layers_nest() -> None:
    stack = LayerStack()
    for layer in (Rot(1), Rot(10)):
        stack.push_input(layer)
        stack.push_output(layer)
    assert stack.send(b"a") == b"l"
    assert stack.receive(b"l") == b"a"
    assert stack.established


def test_the_end_comes_after_what_a_layer_still_holds() -> None:
    stack = LayerStack()
    outer, inner = Rot(1), DeflateLayer(1)
    stack.push_input(outer)
    stack.push_input(inner)
    size = 3 * LAYER_PIECE_SIZE_BYTES_MAX
    # 255 ends the outer layer, so it must not be in the compressed bytes.
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    folded = compressor.compress(bytes(size)) + compressor.flush()
    assert not {254, 255} & set(folded)
    received = [stack.receive(outer.send(folded) + b"\xff")]
    while stack.holding:
        assert not stack.closing
        received.append(stack.receive(b""))
    assert stack.closing
    assert sum(map(len, received)) == size
