"""Signatures of RocketMQ's access control 1.0.

Source: RocketMQ 4.9.8, AclSigner and AclUtils.combineRequestContent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ACCESS_KEY", "SIGNATURE", "is_signed_with", "sign"]

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"


def sign(secret: str, ext: Mapping[str, str], body: bytes) -> str:
    """Make the signature of a request: HMAC-SHA1 of the values of its fields by name (but for Signature) and its body, in base64."""
    values = "".join([ext[name] for name in sorted(ext) if name != SIGNATURE])
    digest = hmac.new(secret.encode("utf-8", "replace"), values.encode("utf-8", "replace") + body, hashlib.sha1)
    return base64.b64encode(digest.digest()).decode()


def is_signed_with(secret: str, ext: Mapping[str, str], body: bytes) -> bool:
    """Say whether a request has the signature that the secret makes; takes as long whatever is wrong."""
    given = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    return hmac.compare_digest(sign(secret, ext, body).encode(), given)
