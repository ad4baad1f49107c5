"""`/config/{opt}`: nsqd's options by the names of its configuration file.

What polymq has no counterpart for is answered with nsqd's default, since tools read these to learn about limits. Two
can be changed while running: the log level, and nsqlookupd's addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from polymq.gateways.nsq import http_answers
from polymq.gateways.nsq.http_answers import ApiError, endpoint
from polymq.gateways.nsq.http_context import default_node_id
from polymq.limits import LOOKUP_ADDRESSES_MAX
from polymq.wire.exchange import BodyState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response

__all__ = ["change_option", "show_option"]

_NS_PER_MS: Final = 1_000_000
# nsqd's numbers for its levels.
_LOG_LEVELS: Final = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}

# Options of nsqd that mean nothing here, with nsqd's defaults. All others are the context's.
_INERT: Final[Mapping[str, object]] = {
    "log_prefix": "[nsqd] ",
    "mem_queue_size": 10_000,
    "max_bytes_per_file": 100 * 1024 * 1024,
    "queue_scan_selection_count": 20,
    "queue_scan_worker_pool_max": 4,
}


@endpoint
def show_option(request: Request, context: NsqHttp) -> Response:
    """GET /config/{opt}."""
    return _shown(request.parameters["opt"], context)


@endpoint
def change_option(request: Request, context: NsqHttp) -> Response:
    """PUT /config/{opt}: the value as the body; answers with what holds from now on."""
    if request.body_state is BodyState.BROKEN:
        raise ApiError(500, "INTERNAL_ERROR")
    if request.body_state is BodyState.TOO_LARGE or len(request.body_view) == 0:
        raise ApiError(413, "INVALID_VALUE")
    option = request.parameters["opt"]
    value = bytes(request.body_view)
    if option == "nsqlookupd_tcp_addresses":
        context.changing.lookupd_addresses = _addresses(value)
        context.change_lookupd_addresses(list(context.changing.lookupd_addresses or ()))
    elif option == "log_level":
        level = value.decode("utf-8", "replace").lower()
        if level not in _LOG_LEVELS:
            raise ApiError(400, "INVALID_VALUE")
        context.changing.log_level = level
        context.change_log_level(level)
    else:
        raise ApiError(400, "INVALID_OPTION")
    return _shown(option, context)


def _addresses(value: bytes) -> list[str] | None:
    """Read an array of strings as Go would: null is none at all, and a null in it is empty text."""
    try:
        addresses = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "INVALID_VALUE") from error
    if addresses is None:
        return None
    if not isinstance(addresses, list) or not all(address is None or isinstance(address, str) for address in addresses):
        raise ApiError(400, "INVALID_VALUE")
    if len(addresses) > LOOKUP_ADDRESSES_MAX:
        raise ApiError(400, "INVALID_VALUE")
    return [address or "" for address in addresses]


def _shown(option: str, context: NsqHttp) -> Response:
    options = _options(context)
    if option not in options:
        raise ApiError(400, "INVALID_OPTION")
    value = options[option]
    return http_answers.text(value) if isinstance(value, str) else http_answers.json(value)


def _options(context: NsqHttp) -> dict[str, object]:
    node, settings = context.node, context.settings
    return {
        **_INERT,
        **context.options,
        "id": default_node_id(node.host_name) if node.node_id is None else node.node_id,
        "log_level": _LOG_LEVELS[context.changing.log_level],
        "tcp_address": node.tcp_address,
        "http_address": node.http_address,
        "https_address": node.https_address,
        "broadcast_address": node.broadcast_address,
        "broadcast_tcp_port": node.broadcast_tcp_port,
        "broadcast_http_port": node.broadcast_http_port,
        "nsqlookupd_tcp_addresses": context.changing.lookupd_addresses,
        "data_path": node.data_path,
        "msg_timeout": settings.message_timeout_ms * _NS_PER_MS,
        "max_msg_timeout": settings.message_timeout_ms_max * _NS_PER_MS,
        "max_msg_size": settings.message_size_bytes_max,
        "max_body_size": settings.body_size_bytes_max,
        "max_req_timeout": settings.requeue_delay_ms_max * _NS_PER_MS,
        "max_heartbeat_interval": settings.heartbeat_interval_ms_max * _NS_PER_MS,
        "max_rdy_count": settings.ready_count_max,
        "max_output_buffer_size": settings.output_buffer_size_bytes_max,
        "max_output_buffer_timeout": settings.output_buffer_timeout_ms_max * _NS_PER_MS,
        "min_output_buffer_timeout": settings.output_buffer_timeout_ms_min * _NS_PER_MS,
        "output_buffer_timeout": settings.output_buffer_timeout_ms * _NS_PER_MS,
        "deflate": settings.deflate,
        "max_deflate_level": settings.deflate_level_max,
        "snappy": settings.snappy,
    }
