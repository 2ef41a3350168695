# Generated from berth._async by generate_sync.py. Do not edit.
"""The client."""

from __future__ import annotations

import os
from types import TracebackType

from berth._sync.runs import Runs
from berth._sync.sandbox import Sandboxes
from berth._sync.sessions import Sessions, Worker
from berth._sync.transport import Transport
from berth._sync.workspaces import Workspaces
from berth._endpoint import Pem, endpoint


class Berth:
    """A client of a Berth service. The first call connects::

        with Berth() as berth:
            with berth.sandboxes.create() as sandbox:
                result = sandbox.run("echo hello")
                print(result.stdout)

    `address`: "HOST:PORT", "unix:PATH", "http://…" or "https://…"; by default BERTH_ADDRESS, otherwise 127.0.0.1:7070.
    `profile`: replaces the address by one of ~/.config/berth/profiles.json, by default BERTH_PROFILE; it has an address
    and may have a token. `token`, or the file `token_file` that contains it, which each call reads again: sent as
    `authorization: Bearer`; by default the profile's, BERTH_TOKEN, or the file BERTH_TOKEN_FILE, in this order; "" for
    none. `ca`: the certificates to trust, as the path of a PEM file or its bytes, which turns on TLS; `tls=True`
    without `ca` trusts those that come with gRPC, or in the file GRPC_DEFAULT_SSL_ROOTS_FILE_PATH. `client_cert` and
    `client_key`: the certificate to present to a service that requires one (`berth serve --tls-client-ca`) and its
    private key, as `ca`; they also turn on TLS. Files may be renewed at any time. `retry_for`: seconds to retry calls
    that are safe to repeat while the service cannot be reached (default 5; 0: never). Those are calls that read, and
    those with a request id, which the service carries out once: the client sets one for calls that create, change or
    remove something, and you may set one for what you run. All other calls are made once.

    Every call raises a `BerthError`: see `berth.errors`. A client may be used by several threads.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        ca: Pem | None = None,
        client_cert: Pem | None = None,
        client_key: Pem | None = None,
        tls: bool | None = None,
        retry_for: float = 5.0,
    ) -> None:
        #: The connection; its `stubs` are the generated ones of berth.v1.
        self.transport = Transport(
            endpoint(address, token, ca, tls, token_file, profile, client_cert, client_key), retry_for
        )
        #: Places to run commands.
        self.sandboxes = Sandboxes(self.transport)
        #: Stateful resources of workers, and their tools.
        self.sessions = Sessions(self.transport)
        #: Directories that outlive sandboxes.
        self.workspaces = Workspaces(self.transport)
        #: Supervised sequences of many steps.
        self.runs = Runs(self.transport)

    @property
    def address(self) -> str:
        """The service's address, as given."""
        return self.transport.endpoint.address

    def worker(self, worker_id: str = "") -> Worker:
        """A worker, whose sessions `berth.sessions` keeps, by an id that you choose; by default a new one."""
        return self.sessions.worker(worker_id)

    def close(self) -> None:
        """Ends commands whose output is still being read, creates that still run, and the connection. Idempotent."""
        self.transport.close()

    def __enter__(self) -> Berth:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
