"""AgentFlow's `Sandbox`, on Berth's sessions. For code written for AgentFlow's sandbox.

It replaces AgentFlow's class of the same name: the constructor's `worker_id`, `server_url` and `timeout`; start, close,
create_session, execute, execute_batch, refresh_sessions, reinitialize, list_sessions, destroy_session, get_tools,
get_status and warmup, each also with the suffix `_sync`; and both kinds of `with`. Results are the plain dicts of
AgentFlow's documentation, with whole numbers as ints.

To migrate: `berth.AsyncBerth().worker(worker_id)` has the same calls with typed results and errors: create, execute,
execute_batch, refresh, reinitialize, list, destroy. `Berth().worker(…)` is the same without asyncio.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType

from berth._async.transport import AsyncTransport
from berth._async.worker_dicts import Action, AsyncWorkerDicts, Dict, Resources
from berth._endpoint import Pem, endpoint
from berth._sync.transport import Transport
from berth._sync.worker_dicts import WorkerDicts
from berth.types import Json

__all__ = ["Sandbox"]

#: How long to retry calls while the service cannot be reached, as the client by itself does.
_RETRY_S = 5.0


class Sandbox:
    """The sessions of one worker, and the tools that run on them::

        async with Sandbox() as sandbox:
            await sandbox.create_session("bash")
            result = await sandbox.execute("bash:run", {"command": "echo hello"})
            print(result["data"]["stdout"])

    `worker_id`: the worker that owns the sessions; by default a new one. `server_url`, `token`, `ca` and `tls`: how to
    reach the service, as for `berth.AsyncBerth`. `timeout`: default timeout of tools in seconds. `keep_sessions`: keeps
    the sessions at the end; by default they are destroyed.

    A call raises a `berth.BerthError` if there is no result of a tool: the service cannot be reached, the tool does not
    exist, or its parameters are invalid.
    """

    def __init__(
        self,
        server_url: str | None = None,
        worker_id: str | None = None,
        *,
        timeout: float | None = None,
        token: str | None = None,
        ca: Pem | None = None,
        tls: bool | None = None,
        keep_sessions: bool = False,
        warmup_resources: Sequence[str] | None = None,
    ) -> None:
        #: The worker that owns the sessions.
        self.worker_id = worker_id or f"worker-{uuid.uuid4().hex[:12]}"
        # Read once: a token that the shell pipes in is gone after that.
        self._endpoint = endpoint(server_url, token, ca, tls)
        #: The address of the service.
        self.server_url = self._endpoint.address
        self._timeout = timeout
        self._keep_sessions = keep_sessions
        self._warmup_resources = warmup_resources
        self._async: AsyncWorkerDicts | None = None
        self._sync: WorkerDicts | None = None

    @property
    def _calls(self) -> AsyncWorkerDicts:
        if self._async is None:
            transport = AsyncTransport(self._endpoint, _RETRY_S)
            self._async = AsyncWorkerDicts(transport, self.worker_id, self._timeout)
        return self._async

    @property
    def _sync_calls(self) -> WorkerDicts:
        if self._sync is None:
            transport = Transport(self._endpoint, _RETRY_S)
            self._sync = WorkerDicts(transport, self.worker_id, self._timeout)
        return self._sync

    @property
    def is_started(self) -> bool:
        """Whether it was used or entered since it was created or closed."""
        return self._async is not None or self._sync is not None

    async def start(self, warmup_resources: Sequence[str] | None = None) -> Sandbox:
        """Checks that the service answers. Returns itself."""
        await self._calls.warmup(warmup_resources or self._warmup_resources)
        return self

    async def close(self) -> None:
        """Destroys the worker's sessions, unless `keep_sessions`, and closes the connection. Idempotent."""
        calls, self._async = self._async, None
        sync_calls, self._sync = self._sync, None
        try:
            if calls is not None:
                await calls.close(destroy=not self._keep_sessions)
        finally:
            if sync_calls is not None:
                sync_calls.close(destroy=calls is None and not self._keep_sessions)

    async def create_session(
        self, resources: Resources, config: Mapping[str, Json] | None = None
    ) -> Dict:
        """Creates sessions: of one type with a config, of a list of types, or of a dict from type to config.

        For one type: {"status": "success" | "exists" | "error", "resource_type", "session_id", "session_name",
        "config"}, or with a message in "error". For several: {"status": "success" | "partial" | "error", "sessions":
        {type: the same}}.
        """
        return await self._calls.create_session(resources, config)

    async def execute(
        self,
        action: str,
        params: Mapping[str, Json] | None = None,
        timeout: float | None = None,
        trace_id: str = "",
    ) -> Dict:
        """Runs a tool, such as "vm:click", on the worker's session of its type, or on a temporary one.

        {"code": 0, "message": "success", "data": …, "meta": {"tool", "full_name", "resource_type", "session_id",
        "temporary_session", "trace_id", "execution_time_ms"}}; binary data, if any, as "attachments": [{"name",
        "media_type", "content" in Base64}]. Code 4001: the tool failed; 5006: it exceeded its timeout (seconds).
        """
        return await self._calls.execute(action, params, timeout, trace_id)

    async def execute_batch(
        self,
        actions: Sequence[Action],
        parallel: bool = False,
        stop_on_error: bool = False,
        timeout: float | None = None,
        trace_id: str = "",
    ) -> Dict:
        """Runs several tools: each {"action": "bash:run", "params": {…}}, or ("bash:run", {…}).

        {"code", "message", "data": {"results": [as of `execute`], "total", "executed", "success_count"}}.
        """
        return await self._calls.execute_batch(actions, parallel, stop_on_error, timeout, trace_id)

    async def refresh_sessions(self, resource_type: str | None = None) -> Dict:
        """Restarts the TTL of one session, or of all. {"status", "refreshed": {type: bool}}."""
        return await self._calls.refresh_sessions(resource_type)

    async def reinitialize(self, resource_type: str, new_config: Mapping[str, Json] | None = None) -> Dict:
        """Replaces a session with a new one, and leaves the others alone.

        {"status": "success", "resource_type", "old_session_id", "new_session_id", "config_applied"}, or "status":
        "error" with a message in "error": then there is no session of the type. Without a config the current one stays.
        """
        return await self._calls.reinitialize(resource_type, new_config)

    async def list_sessions(self) -> Dict:
        """{"sessions": [{"resource_type", "session_id", "status": "active", …}]}, oldest first."""
        return await self._calls.list_sessions()

    async def destroy_session(self, resources: str | Sequence[str] | None = None) -> Dict:
        """Ends one session, several, or all. {"status": "success" | "not_found", "destroyed": [types]}."""
        return await self._calls.destroy_session(resources)

    async def get_tools(self, resource_type: str = "") -> list[Dict]:
        """Each tool: {"name", "full_name", "resource_type", "description", "parameters" (JSON Schema)}."""
        return await self._calls.get_tools(resource_type)

    async def warmup(self, resources: str | Sequence[str] | None = None) -> Dict:
        """Checks whether the service offers the types: {"status", "resources": {type: bool}}.

        `berth serve --warm-session` keeps sessions ready, not this call.
        """
        return await self._calls.warmup(resources)

    async def get_status(self) -> Dict:
        """{"status": "running", "engine", "total_sandboxes", "max_sandboxes", "active_operations"}."""
        return await self._calls.get_status()

    async def __aenter__(self) -> Sandbox:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start_sync(self, warmup_resources: Sequence[str] | None = None) -> Sandbox:
        """See `start`."""
        self._sync_calls.warmup(warmup_resources or self._warmup_resources)
        return self

    def close_sync(self) -> None:
        """See `close`, which must also be called if asynchronous calls were made."""
        sync_calls, self._sync = self._sync, None
        if sync_calls is not None:
            sync_calls.close(destroy=not self._keep_sessions)

    def create_session_sync(self, resources: Resources, config: Mapping[str, Json] | None = None) -> Dict:
        """See `create_session`."""
        return self._sync_calls.create_session(resources, config)

    def execute_sync(
        self,
        action: str,
        params: Mapping[str, Json] | None = None,
        timeout: float | None = None,
        trace_id: str = "",
    ) -> Dict:
        """See `execute`."""
        return self._sync_calls.execute(action, params, timeout, trace_id)

    def execute_batch_sync(
        self,
        actions: Sequence[Action],
        parallel: bool = False,
        stop_on_error: bool = False,
        timeout: float | None = None,
        trace_id: str = "",
    ) -> Dict:
        """See `execute_batch`."""
        return self._sync_calls.execute_batch(actions, parallel, stop_on_error, timeout, trace_id)

    def refresh_sessions_sync(self, resource_type: str | None = None) -> Dict:
        """See `refresh_sessions`."""
        return self._sync_calls.refresh_sessions(resource_type)

    def reinitialize_sync(self, resource_type: str, new_config: Mapping[str, Json] | None = None) -> Dict:
        """See `reinitialize`."""
        return self._sync_calls.reinitialize(resource_type, new_config)

    def list_sessions_sync(self) -> Dict:
        """See `list_sessions`."""
        return self._sync_calls.list_sessions()

    def destroy_session_sync(self, resources: str | Sequence[str] | None = None) -> Dict:
        """See `destroy_session`."""
        return self._sync_calls.destroy_session(resources)

    def get_tools_sync(self, resource_type: str = "") -> list[Dict]:
        """See `get_tools`."""
        return self._sync_calls.get_tools(resource_type)

    def warmup_sync(self, resources: str | Sequence[str] | None = None) -> Dict:
        """See `warmup`."""
        return self._sync_calls.warmup(resources)

    def get_status_sync(self) -> Dict:
        """See `get_status`."""
        return self._sync_calls.get_status()

    def __enter__(self) -> Sandbox:
        return self.start_sync()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync()
