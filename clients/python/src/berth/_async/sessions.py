"""Sessions: stateful resources of a worker, and the tools that run on them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Union

from berth import _convert
from berth._async.transport import AsyncTransport
from berth.errors import BerthError
from berth.types import (
    BatchResult,
    Json,
    Reinitialized,
    ResourceType,
    SessionInfo,
    SessionResource,
    SessionResult,
    SessionSecrets,
    ToolCall,
    ToolInfo,
    ToolOutput,
    ToolResult,
    Tools,
)
from berth.v1 import session_pb2

_PAGE = 1000


class AsyncWorker:
    """A worker: it has at most one session of each type, such as "bash", "python" or "vm". Created by `berth.worker`.

    As a context manager, its sessions are destroyed at the end::

        async with berth.worker() as worker:
            await worker.create("python")
            result = await worker.execute("python:run", {"code": "1 + 1"})
            print(result.data)

    A tool that is called without a session gets one for that call only: also when the session has expired, 5 minutes
    (`ttl`) after its last call. `meta.temporary_session` says so.
    """

    def __init__(self, transport: AsyncTransport, worker_id: str) -> None:
        self._transport = transport
        #: Its id.
        self.worker_id = worker_id

    async def create(self, *resources: str | SessionResource) -> list[SessionResult]:
        """Creates sessions and returns when they are ready: one result each, CREATED, EXISTS or FAILED.

        An existing session stays as it is. If the only requested resource fails, its error is raised; with several,
        each result has its `error`.
        """
        wanted = [
            SessionResource(resource) if isinstance(resource, str) else resource for resource in resources
        ]
        request = session_pb2.CreateSessionsRequest(
            worker_id=self.worker_id, resources=[_convert.resource_message(each) for each in wanted]
        )
        answer = await self._transport.retried(self._transport.stubs.sessions.CreateSessions, request)
        results = _convert.session_results(answer.results)
        if len(results) == 1 and results[0].error is not None:
            raise results[0].error
        return results

    async def execute(
        self,
        tool: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        trace_id: str = "",
        request_id: str = "",
    ) -> ToolResult:
        """Runs a tool, such as "bash:run", on the worker's session of its type, or on a temporary one.

        The tool reports `code` (0: success), `message` and `data`; binary data, such as a screenshot, is in
        `attachments`. `timeout`: seconds; if the tool exceeds it, the code is 5006.

        If the tool could not run, raises ToolNotFoundError, InvalidArgumentError for bad params, SessionLostError or
        SessionStartFailedError. If the connection breaks, the call is retried only with a `request_id`, under which
        it runs once and its answer is kept.
        """
        request = session_pb2.ExecuteToolRequest(
            request_id=request_id,
            worker_id=self.worker_id,
            tool=tool,
            params=_convert.struct(params),
            timeout=_convert.duration(timeout),
            trace_id=trace_id,
        )
        method = self._transport.stubs.sessions.ExecuteTool
        if request_id:
            answer = await self._transport.retried(method, request)
        else:
            answer = await self._transport.unary(method, request)
        return _convert.tool_result(answer)

    async def execute_stream(
        self,
        tool: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        trace_id: str = "",
    ) -> AsyncIterator[Union[ToolOutput, ToolResult]]:
        """Runs a tool like `execute`: yields its output as it is written, then its result. Leaving the loop ends the
        tool.
        """
        request = session_pb2.ExecuteToolStreamRequest(
            worker_id=self.worker_id,
            tool=tool,
            params=_convert.struct(params),
            timeout=_convert.duration(timeout),
            trace_id=trace_id,
        )
        stream = self._transport.stream(self._transport.stubs.sessions.ExecuteToolStream, request)
        try:
            while (answer := await stream.read()) is not None:
                event = answer.WhichOneof("event")
                if event == "output":
                    yield ToolOutput(_convert.stream_name(answer.output.stream), answer.output.data)
                elif event == "response":
                    yield _convert.tool_result(answer.response)
                    return
            raise BerthError("the service ended the stream without saying what the tool came to")
        finally:
            stream.cancel()

    async def execute_batch(
        self,
        calls: Sequence[ToolCall],
        *,
        parallel: bool = False,
        stop_on_error: bool = False,
        trace_id: str = "",
        request_id: str = "",
    ) -> list[BatchResult]:
        """Runs several tools, one after another or in parallel. Calls on the same session always run one after another.

        Returns for each call a ToolResult, the BerthError because of which it could not run, or None if `stop_on_error`
        prevented its start.
        """
        request = session_pb2.ExecuteToolBatchRequest(
            request_id=request_id,
            worker_id=self.worker_id,
            calls=[
                session_pb2.ToolCall(
                    tool=call.tool,
                    params=_convert.struct(call.params),
                    timeout=_convert.duration(call.timeout),
                    trace_id=call.trace_id,
                )
                for call in calls
            ],
            parallel=parallel,
            stop_on_error=stop_on_error,
            trace_id=trace_id,
        )
        method = self._transport.stubs.sessions.ExecuteToolBatch
        if request_id:
            answer = await self._transport.retried(method, request)
        else:
            answer = await self._transport.unary(method, request)
        return [_convert.batch_result(each) for each in answer.results]

    async def refresh(self, *resource_types: str) -> list[SessionResult]:
        """Restarts the TTL of sessions; without types, of all. One result each: REFRESHED or NOT_FOUND."""
        request = session_pb2.RefreshSessionsRequest(
            worker_id=self.worker_id, resource_types=resource_types
        )
        answer = await self._transport.retried(self._transport.stubs.sessions.RefreshSessions, request)
        return _convert.session_results(answer.results)

    async def reinitialize(
        self,
        resource_type: str,
        config: Mapping[str, Json] | None = None,
        *,
        secrets: SessionSecrets | None = None,
    ) -> Reinitialized:
        """Replaces a session with a new one. `config` replaces all settings, `secrets` all secrets; None keeps them.

        If the new session cannot be created, the status is FAILED with an `error`, and the old session is gone.
        """
        request = session_pb2.ReinitializeSessionRequest(
            worker_id=self.worker_id,
            resource_type=resource_type,
            config=_convert.struct(config),
            secrets=_convert.secrets_message(secrets),
        )
        answer = await self._transport.retried(self._transport.stubs.sessions.ReinitializeSession, request)
        return _convert.reinitialized(answer)

    async def destroy(self, *resource_types: str, grace: float | None = None) -> list[SessionResult]:
        """Ends sessions; without types, all. Running calls may continue for `grace` seconds (default 5). Idempotent."""
        request = session_pb2.DestroySessionsRequest(
            worker_id=self.worker_id, resource_types=resource_types, grace=_convert.duration(grace)
        )
        answer = await self._transport.retried(self._transport.stubs.sessions.DestroySessions, request)
        return _convert.session_results(answer.results)

    async def __aenter__(self) -> AsyncWorker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy(grace=0)

    async def list(self) -> list[SessionInfo]:
        """Its sessions, newest first."""
        return await AsyncSessions(self._transport).list(worker_id=self.worker_id)


class AsyncSessions:
    """The sessions of all workers, and the available tools. `berth.sessions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def worker(self, worker_id: str = "") -> AsyncWorker:
        """A worker, by an id that you choose; by default a new one."""
        return AsyncWorker(self._transport, worker_id or f"worker-{uuid.uuid4().hex[:12]}")

    async def tools(self, resource_type: str = "") -> Tools:
        """The types of sessions that the service offers and their tools: of one type, or of all."""
        tools: list[ToolInfo] = []
        request = session_pb2.ListToolsRequest(resource_type=resource_type, page_size=_PAGE)
        while True:
            page = await self._transport.read(self._transport.stubs.sessions.ListTools, request)
            tools += [_convert.tool(each) for each in page.tools]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        types = [
            ResourceType(each.name, each.description, _convert.dict_of(each.config_schema))
            for each in page.resource_types
        ]
        return Tools(tuple(tools), tuple(types))

    async def list(self, *, worker_id: str = "") -> list[SessionInfo]:
        """Sessions, newest first: of one worker, or of all."""
        found: list[SessionInfo] = []
        request = session_pb2.ListSessionsRequest(worker_id=worker_id, page_size=_PAGE)
        while True:
            page = await self._transport.read(self._transport.stubs.sessions.ListSessions, request)
            found += [_convert.session(each) for each in page.sessions]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token
