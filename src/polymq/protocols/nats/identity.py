"""Names that servers give themselves: an id that looks like the public key that nats-server has, and nonces.

Nobody checks that an id is a key; monitoring tools and clients show it, and servers tell each other apart by it.
"""

from __future__ import annotations

import base64
from typing import Final

__all__ = ["SERVER_ID_SEED_SIZE_BYTES", "make_nonce", "make_server_id"]

SERVER_ID_SEED_SIZE_BYTES: Final = 32
# 11 bytes are 15 characters.
NONCE_SIZE_BYTES: Final = 11
_SERVER_PREFIX: Final = 13 << 3  # "N" in base 32
_CRC_POLYNOMIAL: Final = 0x1021


def make_server_id(seed: bytes) -> str:
    """Write 32 random bytes as a server's public key: 56 characters, the first an N, a CRC-16 at the end."""
    assert len(seed) == SERVER_ID_SEED_SIZE_BYTES
    raw = bytes((_SERVER_PREFIX,)) + seed
    return base64.b32encode(raw + _crc16(raw).to_bytes(2, "little")).decode("ascii").rstrip("=")


def make_nonce(random_bytes: bytes) -> str:
    """Write random bytes as a nonce: what somebody with a key signs to log in."""
    return base64.urlsafe_b64encode(random_bytes[:NONCE_SIZE_BYTES]).decode("ascii").rstrip("=")


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ _CRC_POLYNOMIAL if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc
