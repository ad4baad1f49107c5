"""The limits that an NSQ server tells its clients, with nsqd's defaults.

Every number can be set by whoever runs the server, so they travel as one value instead of living in
`polymq.limits`. Names follow polymq; the flag of nsqd that sets the same thing stands beside each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from polymq.limits import BATCH_SIZE_BYTES_MAX, MESSAGE_SIZE_BYTES_MAX, PENDING_INPUT_SIZE_BYTES_MAX

__all__ = ["LINE_SIZE_BYTES_MAX", "MAGIC", "NsqSettings"]

MAGIC: Final = b"  V2"

# nsqd reads a command line into a buffer of this size and hangs up when the newline is not in it. Observed on 1.3.0.
LINE_SIZE_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class NsqSettings:
    """What a server accepts and offers. Times are in milliseconds because the protocol's are."""

    version: str = "1.3.0"  # nsqadmin and the clients compare it: a semantic version of nsqd
    message_size_bytes_max: int = 1024 * 1024  # --max-msg-size
    body_size_bytes_max: int = 5 * 1024 * 1024  # --max-body-size: IDENTIFY, AUTH and MPUB
    ready_count_max: int = 2500  # --max-rdy-count
    requeue_delay_ms_max: int = 3_600_000  # --max-req-timeout: REQ and DPUB
    http_delay_ms_max: int = 3_600_000  # of /pub and /req; in nsqd the same flag
    heartbeat_interval_ms: int = 30_000  # half of nsqd's client timeout
    heartbeat_interval_ms_max: int = 60_000  # --max-heartbeat-interval
    message_timeout_ms: int = 60_000  # --msg-timeout
    message_timeout_ms_max: int = 900_000  # --max-msg-timeout
    output_buffer_size_bytes: int = 16 * 1024
    output_buffer_size_bytes_max: int = 64 * 1024  # --max-output-buffer-size
    output_buffer_timeout_ms: int = 250  # --output-buffer-timeout
    output_buffer_timeout_ms_min: int = 25  # --min-output-buffer-timeout
    output_buffer_timeout_ms_max: int = 30_000  # --max-output-buffer-timeout
    deflate_level_max: int = 6  # --max-deflate-level
    tls: bool = False  # with --tls-cert and --tls-key
    tls_required: bool = False  # --tls-required, for this protocol
    deflate: bool = True  # --deflate
    snappy: bool = True  # --snappy
    auth_required: bool = False

    @property
    def multi_publish_count_max(self) -> int:
        """Messages in one MPUB: as many as fit a body of the largest size, one byte each (4 for the count, 5 each)."""
        return max(0, (self.body_size_bytes_max - 4) // 5)

    @property
    def command_size_bytes_max(self) -> int:
        """Bytes that one command may occupy on the wire: an MPUB whose stated size left out its inner sizes."""
        return LINE_SIZE_BYTES_MAX + 8 + 4 * self.multi_publish_count_max + self.body_size_bytes_max


_DEFAULT: Final = NsqSettings()
assert _DEFAULT.message_size_bytes_max <= MESSAGE_SIZE_BYTES_MAX
assert _DEFAULT.command_size_bytes_max <= PENDING_INPUT_SIZE_BYTES_MAX
# The log adds eight bytes to each message and one header of at most a hundred to the batch.
assert _DEFAULT.body_size_bytes_max + 8 * _DEFAULT.multi_publish_count_max + 100 <= BATCH_SIZE_BYTES_MAX
