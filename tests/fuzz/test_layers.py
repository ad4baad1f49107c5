"""Invariant: whatever comes, a compressing layer gives bytes in bounded pieces or fails; the cuts make no difference.

Streams are compressed by the layers themselves or by hand, then damaged; a failure names its seed.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import TYPE_CHECKING

import cramjam
import pytest

from polymq.limits import LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.deflate import DeflateLayer
from polymq.wire.layers import LayerFailed
from polymq.wire.snappy import SnappyLayer
from tests.fuzz.test_nsq import SEEDS
from tests.unit.wire.streams import cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.wire.layers import Layer

STREAMS_PER_SEED = 40
# More than that is never made of one stream here: bombs are stopped where a connection would go on in the next turn.
PLAIN_SIZE_BYTES_MAX = 64 * LAYER_PIECE_SIZE_BYTES_MAX


def plain(random_: random.Random) -> bytes:
    size = random_.choice((0, 1, 30, 1000, 70_000, 300_000))
    return random_.choice((random_.randbytes(size), bytes(size), random_.randbytes(7) * (size // 7)))


def snappy_stream(random_: random.Random) -> bytes:
    layer = SnappyLayer()
    parts = [random_.choice((b"", b"\xff\x06\x00\x00sNaPpY"))]
    for _ in range(random_.randint(1, 5)):
        part = layer.send(plain(random_))
        if random_.random() < 0.2:
            part += struct.pack("<I", random_.choice((0x80, 0xFE, 0xFF, 0, 1, 2)) | random_.choice((0, 3, 4, 6, 500, 0xFFFFFF)) << 8)
        if random_.random() < 0.2:
            part += bytes(cramjam.snappy.compress(plain(random_)))
        parts.append(part)
    return b"".join(parts)


def deflate_stream(random_: random.Random) -> bytes:
    layer = DeflateLayer(random_.randint(0, 9))
    stream = b"".join(layer.send(plain(random_)) for _ in range(random_.randint(1, 5)))
    return stream + (zlib.compressobj(1, zlib.DEFLATED, -15).flush() if random_.random() < 0.2 else b"")


def damaged(stream: bytes, random_: random.Random) -> bytes:
    result = bytearray(stream)
    for _ in range(random_.choice((0, 0, 1, 2, 4))):
        at, size = random_.randrange(len(result) + 1), random_.choice((1, 2, 4, 100))
        match random_.randrange(3):
            case 0:
                result[at : at + size] = random_.randbytes(size)
            case 1:
                del result[at : at + size]
            case _:
                result[at:at] = result[at : at + size]
    return bytes(result)


def unfolded(layer: Layer, pieces: list[bytes]) -> tuple[bytes, bool]:
    """What comes out, and whether the layer failed."""
    out = bytearray()
    try:
        for piece in pieces:
            got = layer.receive(piece)
            while True:
                assert len(got) <= LAYER_PIECE_SIZE_BYTES_MAX
                out += got
                if not layer.holding or len(out) > PLAIN_SIZE_BYTES_MAX:
                    break
                got = layer.receive(b"")
            if layer.holding:
                break
    except LayerFailed as error:
        assert str(error)
        return bytes(out), True
    return bytes(out), False


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("make", "stream_of"), [(SnappyLayer, snappy_stream), (lambda: DeflateLayer(1), deflate_stream)], ids=["snappy", "deflate"]
)
def test_layers(make: Callable[[], Layer], stream_of: Callable[[random.Random], bytes], seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        stream = damaged(stream_of(random_), random_)
        cuts = [random_.randrange(len(stream) + 1) for _ in range(random_.randrange(6))]
        whole, failed = unfolded(make(), [stream])
        pieces, failed_in_pieces = unfolded(make(), cut(stream, cuts))
        # A failure may come before or behind what the other way has given out, but the bytes agree as far as they go.
        assert whole[: len(pieces)] == pieces[: len(whole)], (seed, cuts)
        assert failed == failed_in_pieces, (seed, cuts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [SnappyLayer, lambda: DeflateLayer(1)], ids=["snappy", "deflate"])
def test_noise(make: Callable[[], Layer], seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(STREAMS_PER_SEED):
        unfolded(make(), cut(b"\xff\x06\x00\x00sNaPpY" + random_.randbytes(random_.choice((3, 50, 5000))), [random_.randrange(20)]))
