"""A frame's header, in both ways that it is written, one object each: for all that is not hot, and to read what the decoder's own scanner leaves.

    JSON     {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,"version":409}
    binary   i16 code | u8 language | i16 version | i32 opaque | i32 flag | i32 size, remark | i32 size, fields
             each field: i16 size, name | i32 size, value; big-endian, UTF-8

Values of `ext` are strings, whatever they were in JSON: numbers as they were written, booleans as `true` and `false`; null is
left out. What comes twice counts as it came last. Read next: `decode.py`.

Source: RocketMQ 4.9.8, RemotingCommand, RocketMQSerializable; ali-ons 3.12.0 and the C++ core on the wire.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION, Language
from polymq.rocketmq_limits import UNUSUAL_HEADER_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LANGUAGES", "Header", "decode_binary", "decode_json", "dump_json", "encode_binary", "encode_json"]

# Names by number. A language that nobody knows is OTHER.
LANGUAGES: Final = tuple(language.name for language in sorted(Language))
_LANGUAGE_NUMBERS: Final = {language.name: int(language) for language in Language}

_FIXED: Final = struct.Struct(">hBhii")
_I32: Final = struct.Struct(">i")
_I16: Final = struct.Struct(">h")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_I32_MAX: Final = 2**31 - 1
_NAME_SIZE_MAX: Final = 2**15 - 1
# Numbers stay as they are written. Control characters may stand in strings as they are: fastjson takes them.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False)


@dataclass(slots=True)
class Header:
    """What a frame says besides its body."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] = field(default_factory=dict)
    remark: str | None = None
    language: int = int(Language.PYTHON)
    version: int = VERSION

    @property
    def response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def oneway(self) -> bool:
        """Whether nothing may be answered."""
        return bool(self.flag & FLAG_ONEWAY)


def decode_json(data: bytes | memoryview) -> Header:
    """Read a header in JSON. Raises RemoteProtocolError. Limits: UNUSUAL_HEADER_SIZE_BYTES_MAX."""
    if len(data) > UNUSUAL_HEADER_SIZE_BYTES_MAX:
        raise RemoteProtocolError("the header is too large")
    try:
        text = str(data, "utf-8", "replace").strip(" \t\r\n")
        found, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("the header is not JSON") from error
    if end != len(text) or not isinstance(found, dict):
        raise RemoteProtocolError("the header is not a JSON object")
    ext = found.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise RemoteProtocolError("extFields is no JSON object")
    remark = found.get("remark")
    return Header(
        _integer(found, "code"),
        _integer(found, "opaque"),
        _integer(found, "flag"),
        {_clean(name): _text(value) for name, value in (ext or {}).items() if value is not None},
        None if remark is None else _text(remark),
        _language(found.get("language")),
        _integer(found, "version"),
    )


def _integer(found: dict[str, Any], name: str) -> int:
    """Read a number of 32 bits; 0 if there is none."""
    value = found.get(name)
    if value is None:
        return 0
    if not isinstance(value, str) or _INTEGER.fullmatch(value) is None:
        raise RemoteProtocolError(f"{name} is no number")
    number = int(value)
    if not -_I32_MAX - 1 <= number <= _I32_MAX:
        raise RemoteProtocolError(f"{name} is no number of 32 bits")
    return number


def _text(value: object) -> str:
    """Make a string of a value, as Java's clients do of most, and the real broker of all."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _clean(text: str) -> str:
    """Replace halves of characters, which Python can hold and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _language(value: object) -> int:
    if value is None:
        return int(Language.JAVA)
    return _LANGUAGE_NUMBERS.get(value, int(Language.OTHER)) if isinstance(value, str) else int(Language.OTHER)


def decode_binary(data: bytes | memoryview) -> Header:
    """Read a binary header. Raises RemoteProtocolError. Limits: UNUSUAL_HEADER_SIZE_BYTES_MAX."""
    if len(data) > UNUSUAL_HEADER_SIZE_BYTES_MAX:
        raise RemoteProtocolError("the header is too large")
    raw = bytes(data)
    if len(raw) < _FIXED.size + 8:
        raise RemoteProtocolError("the header is too short")
    code, language, version, opaque, flag = _FIXED.unpack_from(raw)
    remark, at = _sized(raw, _FIXED.size, _I32, len(raw))
    if len(raw) - at < 4:
        raise RemoteProtocolError("the header is too short")
    size = max(0, _I32.unpack_from(raw, at)[0])
    at += 4
    end = at + size
    if end > len(raw):
        raise RemoteProtocolError("the fields reach behind the header")
    ext = {}
    while at < end:
        name, at = _sized(raw, at, _I16, end)
        value, at = _sized(raw, at, _I32, end)
        if name:
            ext[name] = value
    return Header(code, opaque, flag, ext, remark or None, language if language < len(LANGUAGES) else int(Language.OTHER), version)


def _sized(raw: bytes, at: int, form: struct.Struct, end: int) -> tuple[str, int]:
    """Read a text behind its size, and say where it ends."""
    if end - at < form.size:
        raise RemoteProtocolError("a size reaches behind the header")
    start = at + form.size
    stop = start + form.unpack_from(raw, at)[0]
    if not start <= stop <= end:
        raise RemoteProtocolError("a text reaches behind the header")
    return raw[start:stop].decode("utf-8", "replace"), stop


def dump_json(value: object) -> bytes:
    """Write compact JSON, in UTF-8; halves of characters are question marks."""
    try:
        return orjson.dumps(value)
    except (TypeError, UnicodeEncodeError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def encode_json(header: Header) -> bytes:
    """Write a header in JSON, its fields in the order of the real peers (which add what nobody needs: `serializeTypeCurrentRPC`)."""
    language = LANGUAGES[header.language] if 0 <= header.language < len(LANGUAGES) else "OTHER"
    remark = b"" if header.remark is None else b',"remark":' + dump_json(header.remark)
    return b'{"code":%d,"extFields":%b,"flag":%d,"language":"%b","opaque":%d%b,"version":%d}' % (
        header.code,
        dump_json(header.ext),
        header.flag,
        language.encode(),
        header.opaque,
        remark,
        header.version,
    )


def encode_binary(header: Header) -> bytes:
    """Write a binary header. Codes above 16 bits lose what is above, as in every peer; names of more than 32767 bytes are left out."""
    fields = _binary_fields(header.ext)
    remark = (header.remark or "").encode("utf-8", "replace")
    code = (header.code & 0xFFFF) - ((header.code & 0x8000) << 1)
    fixed = _FIXED.pack(code, header.language & 0xFF, header.version & 0x7FFF, header.opaque, header.flag)
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(fields)), fields))


def _binary_fields(ext: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in ext.items():
        raw_name = name.encode("utf-8", "replace")
        raw_value = value.encode("utf-8", "replace")
        if raw_name and len(raw_name) <= _NAME_SIZE_MAX:
            parts += (_I16.pack(len(raw_name)), raw_name, _I32.pack(len(raw_value)), raw_value)
    return b"".join(parts)
