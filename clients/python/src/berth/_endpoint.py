"""The address of a service, and how calls to it are secured."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Union
from urllib.parse import urlsplit

import grpc

from berth._profile import find_access

DEFAULT_ADDRESS = "127.0.0.1:7070"

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

CA = Union[str, "os.PathLike[str]", bytes]
"""PEM certificates: the path of a file, or the bytes."""


@dataclass(frozen=True)
class Endpoint:
    """What a client needs to call a service."""

    #: As written by the user.
    address: str
    #: In gRPC's syntax.
    target: str
    #: None: no TLS.
    credentials: grpc.ChannelCredentials | None
    #: Sent with every call.
    metadata: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, int], ...]


def endpoint(
    address: str | None,
    token: str | None,
    ca: CA | None,
    tls: bool | None,
    token_file: str | os.PathLike[str] | None = None,
    profile: str | None = None,
) -> Endpoint:
    """Reads the settings of a client; see `AsyncBerth`."""
    access = find_access(address, token, token_file, profile)
    address = access.address or DEFAULT_ADDRESS
    token = access.token
    ca = access.tls_ca if ca is None else ca
    scheme, _, rest = address.rpartition("://")
    if scheme not in {"", "http", "https", "unix"}:
        raise _bad_address(address)
    if ca is not None and (tls is False or scheme == "http"):
        raise ValueError("ca= is for TLS, which tls=False or http:// turns off")
    target = f"unix:{rest}" if scheme == "unix" else rest.rstrip("/")
    if not target.startswith("unix:"):
        target = _host_and_port(address, target, 443 if scheme == "https" else 80 if scheme == "http" else None)
    secure = ca is not None or (scheme == "https" if tls is None else tls)
    options = {
        "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
        "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
        # To notice a service that is gone without closing the connection.
        "grpc.keepalive_time_ms": 20_000,
        "grpc.keepalive_timeout_ms": 10_000,
        # To reconnect soon after a restart of the service.
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.min_reconnect_backoff_ms": 1_000,
        "grpc.max_reconnect_backoff_ms": 2_000,
    }
    # Each client gets its own connection, so that one created after a fork does not share its parent's.
    options["grpc.use_local_subchannel_pool"] = 1
    if _is_local(target):
        # There is no proxy between a client and its own machine, whatever the environment says.
        options["grpc.enable_http_proxy"] = 0
    return Endpoint(
        address=address,
        target=target,
        credentials=grpc.ssl_channel_credentials(_read(ca)) if secure else None,
        metadata=(("authorization", f"Bearer {token}"),) if token else (),
        options=tuple(options.items()),
    )


def _read(ca: CA | None) -> bytes | None:
    if ca is None:
        return None
    pem = ca if isinstance(ca, bytes) else Path(ca).read_bytes()
    # gRPC would report an unreachable service instead.
    if b"CERTIFICATE-----" not in pem:
        raise ValueError(f"ca={'...' if isinstance(ca, bytes) else repr(os.fspath(ca))} holds no certificate in PEM")
    return pem


def _host_and_port(address: str, text: str, default_port: int | None) -> str:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port or default_port
    except ValueError:
        raise _bad_address(address) from None
    if port is None or (default_port is not None and not parts.hostname) or parts.path or parts.query or parts.username is not None:
        raise _bad_address(address)
    host = parts.hostname or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bad_address(address: str) -> ValueError:
    return ValueError(
        f'{address!r} is not an address: write "127.0.0.1:7070", "[::1]:7070", "unix:/run/berth.sock" '
        'or "https://berth.example:443"'
    )


def _is_local(target: str) -> bool:
    if target.startswith("unix:"):
        return True
    host = target.rsplit(":", 1)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
