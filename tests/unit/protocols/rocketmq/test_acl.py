"""Signatures are those of RocketMQ's signer."""

from __future__ import annotations

import base64
import hashlib
import hmac

from polymq.protocols.rocketmq.acl import is_signed_with, sign


def test_fields_are_signed_by_name_and_the_body_behind_them() -> None:
    ext = {"topic": "T", "AccessKey": "key", "a": "1", "Signature": "not me"}
    digest = hmac.new(b"secret", b"key1Tbody", hashlib.sha1).digest()
    assert sign("secret", ext, b"body") == base64.b64encode(digest).decode()
    # HMAC-SHA1 of nothing with the key "key", a vector that everybody has.
    assert sign("key", {}, b"") == base64.b64encode(bytes.fromhex("f42bb0eeb018ebbd4597ae7213711ec60760843f")).decode()


def test_a_signature_is_checked() -> None:
    ext = {"topic": "T", "AccessKey": "key"}
    ext["Signature"] = sign("secret", ext, b"body")
    assert is_signed_with("secret", ext, b"body")
    assert not is_signed_with("other", ext, b"body")
    assert not is_signed_with("secret", ext, b"bodY")
    assert not is_signed_with("secret", ext | {"topic": "U"}, b"body")
    assert not is_signed_with("secret", ext | {"Signature": "é\ud800"}, b"body")
    assert not is_signed_with("secret", {"topic": "T"}, b"body")
