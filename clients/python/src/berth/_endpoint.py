"""The address of a service, and how calls to it are secured."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Tuple, Union
from urllib.parse import urlsplit

import grpc

from berth._profile import find_access
from berth.errors import BerthError, error_of

DEFAULT_ADDRESS = "127.0.0.1:7070"

#: Seconds that a call may go on after the certificate of its connection was renewed.
RETIRED_FOR = 24 * 3600

#: After this time without calls, connections whose certificate may be renewed close until the next call. Otherwise
#: those that a renewal replaced would stay.
_IDLE_MS = 60_000

#: How often to find out whether the service is still there, and how long it may take to answer.
_PING_INTERVAL_MS = 20_000
_PING_TIMEOUT_MS = 10_000

_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

Pem = Union[str, "os.PathLike[str]", bytes]
"""Certificates or a key in PEM: the path of a file, or the bytes."""


Metadata = Tuple[Tuple[str, str], ...]
"""The headers of a call."""


@dataclass(frozen=True)
class Endpoint:
    """What a client needs to call a service."""

    #: As written by the user.
    address: str
    #: In gRPC's syntax.
    target: str
    #: Returns what secures the next connection: the same object until its files have changed. None: no TLS.
    credentials: Callable[[], grpc.ChannelCredentials] | None
    #: Returns the token to send with a call.
    token: Callable[[], str | None]
    options: tuple[tuple[str, int], ...]

    @property
    def metadata(self) -> Metadata:
        """What to send with the next call."""
        token = self.token()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def error_of(self, error: grpc.RpcError, metadata: Metadata) -> BerthError:
        """The typed error of a failed call that was made with `metadata`."""
        made = error_of(error, self.address, tls=self.credentials is not None)
        made.token_replaced = made.code == "UNAUTHENTICATED" and metadata != self.metadata
        return made


def endpoint(
    address: str | None,
    token: str | None,
    ca: Pem | None,
    tls: bool | None,
    token_file: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    client_cert: Pem | None = None,
    client_key: Pem | None = None,
) -> Endpoint:
    """Reads the settings of a client; see `AsyncBerth`."""
    access = find_access(address, token, token_file, profile)
    address = access.address or DEFAULT_ADDRESS
    ca = access.tls_ca if ca is None else ca
    if client_cert is None and client_key is None:
        client_cert, client_key = access.client_cert, access.client_key
    scheme, _, rest = address.rpartition("://")
    if scheme not in {"", "http", "https", "unix"}:
        raise _bad_address(address)
    if tls is False and scheme == "https":
        raise ValueError(f'tls=False is given, and "{address}" says to use TLS: leave one of them out')
    if tls and scheme == "http":
        raise ValueError(f'tls=True is given, and "{address}" says to do without: write https://')
    if ca is not None and (tls is False or scheme == "http"):
        raise ValueError("ca= is for TLS, which tls=False or http:// turns off")
    if client_cert is not None and (tls is False or scheme == "http"):
        raise ValueError("client_cert= is for TLS, which tls=False or http:// turns off")
    if (client_cert is None) != (client_key is None):
        raise ValueError("client_cert= and client_key= belong together, and only one of them is given")
    target = f"unix:{rest}" if scheme == "unix" else rest.rstrip("/")
    if not target.startswith("unix:"):
        target = _host_and_port(address, target, 443 if scheme == "https" else 80 if scheme == "http" else None)
    secure = ca is not None or client_cert is not None or (scheme == "https" if tls is None else tls)
    options = {
        "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
        "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
        # To notice a service that is gone without closing the connection.
        "grpc.keepalive_time_ms": _PING_INTERVAL_MS,
        "grpc.keepalive_timeout_ms": _PING_TIMEOUT_MS,
        # What newer versions use in its place.
        "grpc.http2.ping_timeout_ms": _PING_TIMEOUT_MS,
        # Also while a call only waits for its response: gRPC by itself stops after two.
        "grpc.http2.max_pings_without_data": 0,
        # To reconnect soon after a restart of the service.
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.min_reconnect_backoff_ms": 1_000,
        "grpc.max_reconnect_backoff_ms": 2_000,
    }
    # Each client gets its own connection, so that one created after a fork does not share its parent's.
    options["grpc.use_local_subchannel_pool"] = 1
    if any(source is not None and not isinstance(source, bytes) for source in (ca, client_cert, client_key)):
        options["grpc.client_idle_timeout_ms"] = _IDLE_MS
    if _is_local(target):
        # There is no proxy between a client and its own machine, whatever the environment says.
        options["grpc.enable_http_proxy"] = 0
    return Endpoint(
        address=address,
        target=target,
        credentials=_Credentials(ca, client_cert, client_key) if secure else None,
        token=access.token,
        options=tuple(options.items()),
    )


class _Credentials:
    """What secures connections. Files are read again once they have changed; then what cannot be used leaves the
    previous content in force, since one file may be written before another.
    """

    def __init__(self, ca: Pem | None, client_cert: Pem | None, client_key: Pem | None) -> None:
        self._sources = (_placed(ca), _placed(client_cert), _placed(client_key))
        self._version = self._version_now()
        self._content = _content(*self._sources)
        self._made = grpc.ssl_channel_credentials(*self._content)

    def __call__(self) -> grpc.ChannelCredentials:
        version = self._version_now()
        if version is not None and version != self._version:
            self._version = version
            with contextlib.suppress(ValueError, OSError):
                content = _content(*self._sources)
                # Files may be written again with what they hold: that needs no other connection.
                if content != self._content:
                    self._content, self._made = content, grpc.ssl_channel_credentials(*content)
        return self._made

    def _version_now(self) -> list[tuple[int, int, int]] | None:
        """What changes when a file is written or replaced. None: nothing to read again."""
        version: list[tuple[int, int, int]] = []
        for source in self._sources:
            if source is None or isinstance(source, bytes):
                continue
            try:
                found = os.stat(source)
            except OSError:
                return None
            # What the shell pipes in can be read only once.
            if not stat.S_ISREG(found.st_mode):
                return None
            version.append((found.st_ino, found.st_ctime_ns, found.st_size))
        return version


def _placed(source: Pem | None) -> Pem | None:
    """The same source, wherever the program works later."""
    return source if source is None or isinstance(source, bytes) else os.path.abspath(source)


def _content(
    ca: Pem | None, client_cert: Pem | None, client_key: Pem | None
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Reads and checks the files: gRPC would report an unreachable service instead. Returns roots, key and
    certificate.
    """
    roots = None if ca is None else _read("ca", ca, b"CERTIFICATE-----", "certificate")
    if ca is not None and roots is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots.decode("ascii", "ignore"))
        except ssl.SSLError as error:
            raise ValueError(f"{_named('ca', ca)} cannot be used: {error}") from error
    if client_cert is None or client_key is None:
        return roots, None, None
    cert = _read("client_cert", client_cert, b"CERTIFICATE-----", "certificate")
    key = _read("client_key", client_key, b"PRIVATE KEY-----", "private key")
    if b"ENCRYPTED" in key:
        raise ValueError(f"{_named('client_key', client_key)} is encrypted: give a key without a passphrase")
    _check_pair(cert, key)
    return roots, key, cert


def _check_pair(cert: bytes, key: bytes) -> None:
    # Python reads them from files alone, and a key that was given as bytes must not get on a disk.
    if sys.platform != "linux":
        return
    with ExitStack() as files:
        paths: list[str] = []
        for pem in (cert, key):
            file = files.enter_context(open(os.memfd_create("pem"), "wb", buffering=0))
            file.write(pem)
            paths.append(f"/proc/self/fd/{file.fileno()}")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*paths)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ValueError("client_key= holds another key than that of client_cert=") from error
            raise ValueError(f"client_cert= and client_key= cannot be used: {error}") from error


def _read(name: str, source: Pem, marker: bytes, content: str) -> bytes:
    pem = source if isinstance(source, bytes) else Path(source).read_bytes()
    if marker not in pem:
        raise ValueError(f"{_named(name, source)} holds no {content} in PEM")
    return pem


def _named(name: str, source: Pem) -> str:
    return f"{name}={'...' if isinstance(source, bytes) else repr(os.fspath(source))}"


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
