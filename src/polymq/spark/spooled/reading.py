"""What an executor does: read pieces of the spool's files, check them, and hand them on as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.spark.losses import report_loss
from polymq.spark.spooled.arrow import record_batch
from polymq.spool.reading import read_piece
from polymq.wire.records import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from polymq.spark.spooled.options import Options
    from polymq.spool.reading import Piece

__all__ = ["read_pieces"]


def read_pieces(pieces: Sequence[Piece], options: Options) -> Iterator[pa.RecordBatch]:
    """Read pieces, in order, and give what they have as Arrow record batches.

    Raises:  DataLoss if a segment has been dropped meanwhile, unless `failOnDataLoss` is off; CorruptRecord, StoreFailed.
    """
    for piece in pieces:
        try:
            for stretch in read_piece(options.location, piece):
                found = columns(stretch.data, 0, stretch.size, stretch.first, stretch.end)
                if found.count:
                    yield record_batch(options.columns, options.protocol, found)
        except FileNotFoundError:
            report_loss(f"the segment with records {piece.first} to {piece.end} has been dropped from the spool", options)
