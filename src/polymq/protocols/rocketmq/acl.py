"""Signatures of RocketMQ's access control 1.0.

Source: RocketMQ 4.9.8, AclSigner and AclUtils.combineRequestContent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_signed_with", "sign"]


def sign(secret: str, ext: Mapping[str, str], body: bytes) -> str:
    """Make the signature of a request: HMAC-SHA1 of the values of its fields by name (but for Signature) and its body, in base64."""
    raise NotImplementedError


def is_signed_with(secret: str, ext: Mapping[str, str], body: bytes) -> bool:
    """Say whether a request has the signature that the secret makes; takes as long whatever is wrong."""
    raise NotImplementedError
