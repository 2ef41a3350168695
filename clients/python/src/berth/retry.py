"""Calls that are made again while the service cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from berth.v1 import error_pb2

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_DETAILS_KEY = "grpc-status-details-bin"
#: A connection that breaks ends its calls in one of these, with no word of the service.
_BROKEN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
_PASSING = {error_pb2.ERROR_REASON_SHUTTING_DOWN, error_pb2.ERROR_REASON_ENGINE_UNAVAILABLE}
_DETAIL_NAME = b"berth.v1.ErrorDetail"


def _fields(data: bytes):
    """The length-delimited fields of a message, as (number, bytes)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        length = varint()
        if key & 7 == 2:
            yield key >> 3, data[at : at + length]
            at += length


def reason_of(error: grpc.RpcError) -> int | None:
    """Why the service refused a call, as ErrorReason; None where the call failed on its way."""
    metadata = error.trailing_metadata() if isinstance(error, grpc.aio.AioRpcError) else None
    for key, value in metadata or ():
        if key != _DETAILS_KEY:
            continue
        # google.rpc.Status has its details, each an Any, in field 3.
        for any_bytes in (field for number, field in _fields(value) if number == 3):
            parts = dict(_fields(any_bytes))
            if parts.get(1, b"").endswith(_DETAIL_NAME):
                return error_pb2.ErrorDetail.FromString(parts.get(2, b"")).reason
    return None


def is_passing(error: grpc.aio.AioRpcError) -> bool:
    """Whether a call that can be made twice is worth making again."""
    reason = reason_of(error)
    return error.code() in _BROKEN if reason is None else reason in _PASSING


async def retrying(for_s: float, call: Callable[[], Awaitable[T]]) -> T:
    """Makes a call again while it fails in passing, for `for_s` seconds at most. It must be safe to make twice."""
    loop = asyncio.get_running_loop()
    until = loop.time() + for_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if not is_passing(error) or loop.time() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)
