"""Deflate as a byte layer: one raw stream per direction (RFC 1951, no header), flushed at the end of every write."""

from __future__ import annotations

import zlib
from typing import Final

from polymq.limits import LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.layers import LayerFailed

__all__ = ["DEFLATE_LEVEL_MAX", "DeflateLayer"]

# A negative number of bits of window means that there is no header and no checksum.
_RAW_WINDOW_BITS: Final = -15
DEFLATE_LEVEL_MAX: Final = 9


class DeflateLayer:
    """One connection's deflate, either side. The level is that of the output; any can be read.

    Limits:  `receive` returns at most LAYER_PIECE_SIZE_BYTES_MAX bytes; what is behind them stays compressed.
    Cost:    about 300 KiB per connection; one call of the library per read and one per write, with the GIL released.
    """

    established = True

    def __init__(self, level: int) -> None:
        assert 0 <= level <= DEFLATE_LEVEL_MAX
        self.closing = False
        self.holding = False
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, _RAW_WINDOW_BITS)
        self._decompressor = zlib.decompressobj(_RAW_WINDOW_BITS)

    def receive(self, data: bytes) -> bytes:
        """Inflate up to the limit; raises LayerFailed. Bytes behind the end of the stream mean nothing."""
        assert not (data and self.holding)
        decompressor = self._decompressor
        try:
            plain = decompressor.decompress(decompressor.unconsumed_tail or data, LAYER_PIECE_SIZE_BYTES_MAX)
        except zlib.error as error:
            raise LayerFailed(f"deflate: {error}") from error
        # A full piece may have left output inside the library although all input is consumed.
        self.holding = not decompressor.eof and len(plain) == LAYER_PIECE_SIZE_BYTES_MAX
        self.closing = decompressor.eof
        return plain

    def send(self, data: bytes) -> bytes:
        """Deflate, up to a boundary of bytes: the peer can read all of it at once."""
        if not data:
            return b""
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def wants_write(self) -> bool:
        """Everything has been written."""
        return False

    def close(self) -> bytes:
        """End without a word, as nsqd does: the stream is flushed, and the protocol above knows what is whole."""
        return b""
