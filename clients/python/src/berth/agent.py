"""An agent's loop, supervised by the service."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import enum
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from berth import _convert
from berth._async.client import AsyncBerth
from berth._async.runs import create_run
from berth._async.transport import AsyncTransport
from berth.errors import BerthError, CanceledError, RunNotFoundError, RunStateError
from berth.types import SandboxSpec
from berth.v1 import run_pb2

T = TypeVar("T")

_MOST_RESULT_BYTES = 16 * 1024
_MOST_MESSAGE_BYTES = 256 * 1024
#: How long to retry creating a run before the service has answered.
_CREATE_S = 30
#: How many keepalives to send per step timeout.
_SIGNS_PER_TIMEOUT = 3
_OVER = (RunStateError, RunNotFoundError)


class AgentState(str, enum.Enum):
    """The state of an agent."""

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Message:
    """A message of the conversation."""

    role: Literal["USER", "SYSTEM", "ASSISTANT", "TOOL"]
    content: str


@dataclass(frozen=True)
class Step:
    """A step to do."""

    run_id: str
    #: Starts at 1.
    number: int
    #: The prompt: the agent's own, with a warning above it if it is stuck.
    prompt: str
    #: The run's sandbox. Empty if it has none.
    sandbox_id: str


@dataclass(frozen=True)
class StepResult:
    """The result of a step. A plain string counts as `result`."""

    #: As text; anything beyond 16 KiB is cut off.
    result: str
    #: Whether the agent has reached its goal.
    finished: bool = False
    #: The messages of the step: up to 100, each cut off after 256 KiB. Unset: the result, as the assistant's message.
    messages: Sequence[Message] | None = field(default=None)


@dataclass(frozen=True)
class AgentRun:
    """The result of a run."""

    run_id: str
    #: IDLE if it reached its maximum of steps.
    state: AgentState
    #: FINISHED, MAX_STEPS, ERROR, CANCELED, LEASE_EXPIRED or DEADLINE.
    outcome: str
    #: How it ended, for people.
    message: str
    #: One line per step.
    summary: str


class Agent(abc.ABC):
    """An agent whose runs the service supervises. Write `step`.

    The service counts the steps, enforces the time limits, warns if the agent repeats itself, and always cleans up,
    even if this program dies. The agent waits for a broken connection or a restarting service: up to the step timeout,
    or 30 s before there is a run. If the run ends during a step, the step is canceled.

    An agent does one run at a time; `close` deletes the last one. Times are in seconds. Unset parameters take the
    service's defaults. `keep_sandbox`: whether the sandbox stays after the run; by default an existing one stays, and
    one created for the run does not.
    """

    def __init__(
        self,
        berth: AsyncBerth,
        *,
        name: str = "",
        max_steps: int | None = None,
        duplicate_threshold: int | None = None,
        step_timeout: float | None = None,
        max_duration: float | None = None,
        next_step_prompt: str = "",
        sandbox_spec: SandboxSpec | None = None,
        sandbox_id: str | None = None,
        keep_sandbox: bool | None = None,
    ) -> None:
        if sandbox_spec is not None and sandbox_id is not None:
            raise ValueError("sandbox_spec and sandbox_id cannot be used together")
        #: The client, for use in steps.
        self.berth = berth
        on_end = run_pb2.RUN_ON_END_UNSPECIFIED
        if keep_sandbox is not None:
            on_end = run_pb2.RUN_ON_END_KEEP if keep_sandbox else run_pb2.RUN_ON_END_DELETE_SANDBOX
        self._request = run_pb2.CreateRunRequest(
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
            self._request.sandbox_id = sandbox_id
        # The request id for creating the next run, so that it is created once no matter how often it is requested.
        self._request.request_id = str(uuid.uuid4())
        self._run: run_pb2.Run | None = None
        self._state = AgentState.IDLE
        self._current_step = 0
        #: Set to stop the work on the run.
        self._stopped = asyncio.Event()
        #: Set while nothing works on the run.
        self._over = asyncio.Event()
        self._over.set()

    @abc.abstractmethod
    async def step(self, step: Step) -> StepResult | str:
        """Does one step. If it raises, the run ends in ERROR."""

    @property
    def state(self) -> AgentState:
        return self._state

    @property
    def current_step(self) -> int:
        """The current step. 0 before the first, and after the maximum of steps."""
        return self._current_step

    @property
    def run_id(self) -> str:
        """Id of its run at the service. Empty before the first."""
        return self._run.run_id if self._run else ""

    async def run(self, request: str = "") -> AgentRun:
        """Does steps until the run is over. Canceling the task cancels the run.

        Raises what a step raised, unless the run ended during that step, and CanceledError if `cancel` or `close` was
        called before the first step.
        `request` becomes the user's first message.
        """
        if self._state is not AgentState.IDLE:
            raise RuntimeError(f"Cannot run agent from state: {self._state.value}")
        self._state = AgentState.RUNNING
        self._stopped.clear()
        self._over.clear()
        try:
            started = await self._unless_stopped(self._start(request))
            if started is None:
                raise CanceledError("the agent was canceled or closed before its first step", code="CANCELLED")
            return await self._loop(
                started.next_step if started.HasField("next_step") else None, started.run.sandbox_id
            )
        except BaseException:
            await asyncio.shield(self._give_up())
            raise
        finally:
            self._over.set()

    async def cancel(self) -> None:
        """Ends the run: cancels its step, and `run` returns."""
        self._stopped.set()
        await self._over.wait()
        # `run` has done so, unless the service could not be reached for a few seconds.
        if self._run is not None:
            await self._cancel_run(self._step_timeout)

    async def reset(self) -> None:
        """Returns it to IDLE after FINISHED or ERROR, and clears its messages."""
        if self._run is not None:
            await self._transport.retried(
                self._transport.stubs.runs.ResetRun,
                run_pb2.ResetRunRequest(run_id=self.run_id),
                self._step_timeout,
            )
        self._settle(AgentState.IDLE, 0)

    async def close(self) -> None:
        """Cancels the run, if there is one, and deletes it once `run` is over. Idempotent."""
        self._stopped.set()
        await self._over.wait()
        if self._run is not None:
            await self._transport.retried(
                self._transport.stubs.runs.DeleteRun,
                run_pb2.DeleteRunRequest(run_id=self.run_id),
                self._step_timeout,
            )
        self._run = None
        self._settle(AgentState.IDLE, 0)

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _create(self) -> run_pb2.Run:
        try:
            run = await create_run(self._transport, self._request, _CREATE_S)
        except asyncio.CancelledError:
            # The run of an abandoned request is removed, so the next one must not return it.
            self._request.request_id = str(uuid.uuid4())
            raise
        self._request.request_id = str(uuid.uuid4())
        return run

    async def _start(self, request: str) -> run_pb2.StartRunResponse:
        if self._run is None:
            self._run = await self._create()
        start = run_pb2.StartRunRequest(request_id=str(uuid.uuid4()), run_id=self.run_id, request=request)
        return await self._transport.retried(self._transport.stubs.runs.StartRun, start, self._step_timeout)

    async def _loop(self, step: run_pb2.NextStep | None, sandbox_id: str) -> AgentRun:
        while step is not None:
            self._current_step = step.step
            done = await self._unless_stopped(self._attempt(step, sandbox_id), self._stay_alive(step))
            if done is None:
                break
            report, error = done
            verdict = await self._unless_stopped(self._report(report))
            if verdict is None:
                # The run ended during the step. If the step raised, that may be why: its commands were killed.
                break
            if error is not None:
                self._settle(AgentState.ERROR, step.step)
                raise error
            step = verdict.next_step if verdict.HasField("next_step") else None
        return await self._result()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T], *ends: Coroutine[Any, Any, object]) -> T | None:
        """Does work. If `cancel` or `close` is called or one of `ends` returns meanwhile, cancels it and returns None."""
        doing = asyncio.create_task(work)
        tasks: list[asyncio.Task[Any]] = [doing]
        tasks += [asyncio.create_task(end) for end in (self._stopped.wait(), *ends)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attempt(
        self, step: run_pb2.NextStep, sandbox_id: str
    ) -> tuple[run_pb2.ReportStepRequest, Exception | None]:
        report = run_pb2.ReportStepRequest(run_id=self.run_id, step=step.step, start_id=step.start_id)
        try:
            made = await self.step(Step(self.run_id, step.step, step.prompt, sandbox_id))
            result = StepResult(made) if isinstance(made, str) else made
            messages = [Message("ASSISTANT", result.result)] if result.messages is None else result.messages
            for message in messages:
                report.messages.add(role=_role_of(message), content=_clip(message.content, _MOST_MESSAGE_BYTES))
            report.result = _clip(result.result, _MOST_RESULT_BYTES)
            report.outcome = (
                run_pb2.STEP_OUTCOME_FINISHED if result.finished else run_pb2.STEP_OUTCOME_CONTINUE
            )
            return report, None
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the run
            del report.messages[:]
            report.result = _clip(str(error) or type(error).__name__, _MOST_RESULT_BYTES)
            report.outcome = run_pb2.STEP_OUTCOME_ERROR
            return report, error

    async def _stay_alive(self, step: run_pb2.NextStep) -> None:
        """Sends keepalives. Returns when the run is over."""
        alive = run_pb2.KeepAliveRunRequest(run_id=self.run_id, step=step.step, start_id=step.start_id)
        while True:
            await asyncio.sleep(self._step_timeout / _SIGNS_PER_TIMEOUT)
            try:
                await self._transport.unary(self._transport.stubs.runs.KeepAliveRun, alive)
            except _OVER:
                return
            except BerthError:
                # The next keepalive may succeed.
                continue

    async def _report(self, report: run_pb2.ReportStepRequest) -> run_pb2.ReportStepResponse | None:
        try:
            return await self._transport.retried(
                self._transport.stubs.runs.ReportStep, report, self._step_timeout
            )
        except _OVER:
            return None

    async def _result(self) -> AgentRun:
        run = await (self._cancel_run() if self._stopped.is_set() else self._get())
        self._settle(_state_of(run), run.current_step)
        outcome = _convert.run_outcome(run.outcome)
        return AgentRun(run.run_id, self._state, outcome, run.message, run.summary)

    async def _give_up(self) -> None:
        """Cancels the run after a failure that is not its own, because nobody continues it."""
        if self._state is not AgentState.RUNNING:
            return
        if self._run is None:
            return self._settle(AgentState.IDLE, 0)
        self._settle(AgentState.ERROR, self._current_step)
        with contextlib.suppress(BerthError):
            request = run_pb2.CancelRunRequest(run_id=self.run_id)
            run = (await self._transport.unary(self._transport.stubs.runs.CancelRun, request)).run
            self._settle(_state_of(run), run.current_step)

    async def _get(self) -> run_pb2.Run:
        """Reads the run, with retries over broken connections: a read is safe to repeat."""
        request = run_pb2.GetRunRequest(run_id=self.run_id)
        return (await self._transport.read(self._transport.stubs.runs.GetRun, request, self._step_timeout)).run

    async def _cancel_run(self, retry_for: float | None = None) -> run_pb2.Run:
        """Ends the run at the service, if it is RUNNING."""
        request = run_pb2.CancelRunRequest(run_id=self.run_id)
        return (await self._transport.retried(self._transport.stubs.runs.CancelRun, request, retry_for)).run

    @property
    def _transport(self) -> AsyncTransport:
        return self.berth.transport

    @property
    def _step_timeout(self) -> float:
        return self._run.step_timeout.ToTimedelta().total_seconds() if self._run else 0

    def _settle(self, state: AgentState, step: int) -> None:
        self._state = state
        self._current_step = step


def _state_of(run: run_pb2.Run) -> AgentState:
    name = _convert.run_state(run.state)
    # An unknown state, from a newer service, cannot be continued from.
    return AgentState(name) if name in AgentState.__members__ else AgentState.ERROR


def _role_of(message: Message) -> run_pb2.RunMessageRole.ValueType:
    try:
        return run_pb2.RunMessageRole.Value(f"RUN_MESSAGE_ROLE_{message.role}")
    except ValueError:
        raise ValueError(f'"{message.role}" is not a role: USER, SYSTEM, ASSISTANT or TOOL.') from None


def _clip(text: str, most_bytes: int) -> str:
    """The longest prefix of a text within a number of bytes."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")
