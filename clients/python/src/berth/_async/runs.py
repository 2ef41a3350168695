"""Runs: sequences of many steps that the service supervises."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from berth import _convert
from berth._async.subscription import AsyncSubscription
from berth._async.transport import AsyncStream, AsyncTransport
from berth.types import NextStep, Report, RunEvent, RunInfo, RunMessage, SandboxSpec
from berth.v1 import run_pb2

_PAGE = 1000
_OUTCOMES = {
    "CONTINUE": run_pb2.STEP_OUTCOME_CONTINUE,
    "FINISHED": run_pb2.STEP_OUTCOME_FINISHED,
    "ERROR": run_pb2.STEP_OUTCOME_ERROR,
}
_ROLES = {
    "USER": run_pb2.RUN_MESSAGE_ROLE_USER,
    "SYSTEM": run_pb2.RUN_MESSAGE_ROLE_SYSTEM,
    "ASSISTANT": run_pb2.RUN_MESSAGE_ROLE_ASSISTANT,
    "TOOL": run_pb2.RUN_MESSAGE_ROLE_TOOL,
}


async def create_run(
    transport: AsyncTransport, request: run_pb2.CreateRunRequest, retry_for: float | None = None
) -> run_pb2.Run:
    """Creates a run. If that is canceled, or the client is closed meanwhile, removes the run later."""
    request.request_id = request.request_id or uuid.uuid4().hex
    method = transport.stubs.runs.CreateRun
    answer = await transport.make(
        lambda: transport.retried(method, request, retry_for),
        # The service may have created it. The same request again returns the run to delete.
        lambda: _undo(transport, _copy(request)),
    )
    return answer.run


def _copy(request: run_pb2.CreateRunRequest) -> run_pb2.CreateRunRequest:
    copy = run_pb2.CreateRunRequest()
    copy.CopyFrom(request)
    return copy


async def _undo(transport: AsyncTransport, request: run_pb2.CreateRunRequest) -> None:
    run = (await transport.retried(transport.stubs.runs.CreateRun, request)).run
    await transport.retried(transport.stubs.runs.DeleteRun, run_pb2.DeleteRunRequest(run_id=run.run_id))


class AsyncRuns:
    """The runs of a service, one call at a time. `berth.runs`. `berth.Agent` is the loop over them.

    All methods may raise: RunNotFoundError, and RunStateError if the run is not in a state that allows the call.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        name: str = "",
        *,
        max_steps: int | None = None,
        duplicate_threshold: int | None = None,
        step_timeout: float | None = None,
        max_duration: float | None = None,
        next_step_prompt: str = "",
        sandbox_spec: SandboxSpec | None = None,
        sandbox_id: str | None = None,
        keep_sandbox: bool | None = None,
    ) -> RunInfo:
        """Creates a run in state IDLE. A create that is canceled, or whose client is closed meanwhile, leaves nothing
        behind.

        It takes at most `max_steps` steps (default 10); `duplicate_threshold` identical earlier messages make it
        stuck (2); `step_timeout` seconds of silence end it (300), as does `max_duration` seconds in total (no limit).
        It works in a sandbox that is created at each start, in an existing one, or in none. `keep_sandbox`: whether
        the sandbox stays at the end; by default an existing one stays.
        """
        if sandbox_spec is not None and sandbox_id is not None:
            raise ValueError("sandbox_spec and sandbox_id cannot be used together")
        on_end = run_pb2.RUN_ON_END_UNSPECIFIED
        if keep_sandbox is not None:
            on_end = run_pb2.RUN_ON_END_KEEP if keep_sandbox else run_pb2.RUN_ON_END_DELETE_SANDBOX
        request = run_pb2.CreateRunRequest(
            name=name,
            max_steps=max_steps,
            duplicate_threshold=duplicate_threshold,
            step_timeout=_convert.duration(step_timeout),
            max_duration=_convert.duration(max_duration),
            next_step_prompt=next_step_prompt,
            sandbox_spec=None if sandbox_spec is None else _convert.spec_message(sandbox_spec),
            on_end=on_end,
        )
        if sandbox_id is not None:
            request.sandbox_id = sandbox_id
        return _convert.run(await create_run(self._transport, request))

    async def start(self, run_id: str, request: str = "") -> tuple[RunInfo, NextStep]:
        """Starts an IDLE run: prepares its sandbox and hands out the first step. `request`: the first message."""
        message = run_pb2.StartRunRequest(run_id=run_id, request=request)
        answer = await self._transport.retried(self._transport.stubs.runs.StartRun, message)
        return _convert.run(answer.run), _convert.next_step(answer.next_step)

    async def report(
        self,
        run_id: str,
        step: NextStep | int,
        result: str = "",
        *,
        outcome: str = "CONTINUE",
        messages: Sequence[RunMessage] = (),
    ) -> Report:
        """Reports a step: "CONTINUE", "FINISHED" or "ERROR". Returns how the run continues.

        `step`: one that was handed out, or the number of the current one, which `get` returns to a program that
        continues another's run.
        """
        if outcome not in _OUTCOMES:
            raise ValueError(f"an outcome is one of {', '.join(_OUTCOMES)}, not {outcome!r}")
        for message in messages:
            if message.role not in _ROLES:
                raise ValueError(f"a message is from one of {', '.join(_ROLES)}, not {message.role!r}")
        request = run_pb2.ReportStepRequest(
            run_id=run_id,
            step=step if isinstance(step, int) else step.step,
            start_id="" if isinstance(step, int) else step.start_id,
            result=result,
            outcome=_OUTCOMES[outcome],
            messages=[run_pb2.RunMessage(role=_ROLES[each.role], content=each.content) for each in messages],
        )
        return _convert.report(
            await self._transport.retried(self._transport.stubs.runs.ReportStep, request)
        )

    async def keep_alive(self, run_id: str, step: NextStep | int = 0) -> None:
        """Says that the caller is still working on the current step."""
        request = run_pb2.KeepAliveRunRequest(
            run_id=run_id,
            step=step if isinstance(step, int) else step.step,
            start_id="" if isinstance(step, int) else step.start_id,
        )
        await self._transport.retried(self._transport.stubs.runs.KeepAliveRun, request)

    async def cancel(self, run_id: str) -> RunInfo:
        """Cancels a RUNNING run. Idempotent."""
        request = run_pb2.CancelRunRequest(run_id=run_id)
        answer = await self._transport.retried(self._transport.stubs.runs.CancelRun, request)
        return _convert.run(answer.run)

    async def reset(self, run_id: str) -> RunInfo:
        """Returns an ended run to IDLE, and clears its messages."""
        request = run_pb2.ResetRunRequest(run_id=run_id)
        answer = await self._transport.retried(self._transport.stubs.runs.ResetRun, request)
        return _convert.run(answer.run)

    async def get(self, run_id: str, *, include_messages: bool = False, skip_messages: int = 0) -> RunInfo:
        """The data of a run. `skip_messages` leaves out that many of the newest messages, to read a long conversation
        in parts."""
        request = run_pb2.GetRunRequest(
            run_id=run_id, include_messages=include_messages, skip_messages=skip_messages
        )
        answer = await self._transport.read(self._transport.stubs.runs.GetRun, request)
        return _convert.run(answer.run)

    async def list(self) -> list[RunInfo]:
        """Every run, newest first, without steps, messages and summaries."""
        found: list[RunInfo] = []
        request = run_pb2.ListRunsRequest(page_size=_PAGE)
        while True:
            page = await self._transport.read(self._transport.stubs.runs.ListRuns, request)
            found += [_convert.run(each) for each in page.runs]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def delete(self, run_id: str) -> None:
        """Removes a run and its record; a RUNNING one is canceled first. Idempotent."""
        request = run_pb2.DeleteRunRequest(run_id=run_id)
        await self._transport.retried(self._transport.stubs.runs.DeleteRun, request)

    def watch(self, run_id: str, *, after_sequence: int = 0) -> AsyncSubscription[RunEvent]:
        """The events of a run: first the kept history after a sequence, then events as they happen. Ends when the run
        is deleted. If the connection breaks, it continues after the last event.
        """

        def connect(last: RunEvent | None) -> AsyncStream[run_pb2.WatchRunResponse]:
            request = run_pb2.WatchRunRequest(
                run_id=run_id, after_sequence=last.sequence if last else after_sequence
            )
            return self._transport.stream(self._transport.stubs.runs.WatchRun, request)

        return AsyncSubscription(self._transport, connect, _convert.run_event, announced=False, resumes=True)
