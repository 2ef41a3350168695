"""OpenManus's names, on Berth. For code written for OpenManus's `app.sandbox` and `app.agent.base`.

They replace OpenManus's SandboxSettings, SandboxManager, DockerSandbox, AsyncDockerizedTerminal, BaseSandboxClient,
LocalSandboxClient, create_sandbox_client, SANDBOX_CLIENT, SandboxError, SandboxTimeoutError, SandboxResourceError,
AgentState, Memory and BaseAgent. Replace `from app.sandbox…` and `from app.agent.base` by `from berth.openmanus`. Then
the service runs the sandboxes: it counts them, deletes idle ones, ends a command with everything it started at its
timeout, and cleans up if the program dies.

To migrate: a SandboxManager is `berth.AsyncBerth().sandboxes`; a DockerSandbox is what its `create` returns, whose
`run` returns exit code, stdout and stderr separately; a BaseAgent is a `berth.Agent`.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import enum
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Union

from berth._async.client import AsyncBerth
from berth._async.sandbox import AsyncSandbox
from berth._async.sessions import AsyncWorker
from berth.agent import Agent, AgentRun, Step, StepResult
from berth.agent import Message as RunMessage
from berth.errors import (
    BerthError,
    ImageUnavailableError,
    NotFoundError,
    SandboxNotFoundError,
    SandboxNotRunningError,
)
from berth.types import Json, Mount, SandboxSpec, SessionResource

__all__ = [
    "SANDBOX_CLIENT",
    "AgentState",
    "AsyncDockerizedTerminal",
    "BaseAgent",
    "BaseSandboxClient",
    "DockerSandbox",
    "LocalSandboxClient",
    "Memory",
    "Message",
    "SandboxError",
    "SandboxManager",
    "SandboxResourceError",
    "SandboxSettings",
    "SandboxTimeoutError",
    "create_sandbox_client",
]

STUCK_PROMPT = (
    "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted."
)
#: How long operations in a sandbox may continue while it is deleted.
_DELETE_GRACE_S = 5
_SHUTTING_DOWN = "Failed to create sandbox: the manager is shutting down"
#: As long as any sandbox may stay idle: a terminal ends with its sandbox.
_TERMINAL_TTL_S = 24 * 24 * 3600
#: The code of a tool that exceeded its timeout.
_TIMED_OUT = 5006
_UNITS = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class SandboxError(Exception):
    """Something about a sandbox failed."""


class SandboxTimeoutError(SandboxError):
    """A command exceeded its timeout, and was ended with everything it started."""


class SandboxResourceError(SandboxError):
    """A sandbox could not be created, because a limit is reached."""


@dataclass
class SandboxSettings:
    """The settings of a sandbox, with OpenManus's defaults."""

    use_sandbox: bool = False
    image: str = "python:3.12-slim"
    work_dir: str = "/workspace"
    #: In Docker's syntax: "512m", "1g".
    memory_limit: str = "512m"
    #: Cores.
    cpu_limit: float = 1.0
    #: Default timeout of commands in seconds.
    timeout: int = 300
    network_enabled: bool = False


class DockerSandbox:
    """A sandbox of the service, with OpenManus's methods.

    `volume_bindings`: maps directories of the host, which the operator must allow, to paths in the sandbox. `client`:
    the service; by default the one at BERTH_ADDRESS. `idle_timeout`: seconds without use after which the service
    deletes it (default: 1 hour).
    """

    def __init__(
        self,
        config: SandboxSettings | None = None,
        volume_bindings: Mapping[str, str] | None = None,
        *,
        client: AsyncBerth | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self.config = config or SandboxSettings()
        self.volume_bindings = dict(volume_bindings or {})
        self.terminal: AsyncDockerizedTerminal | None = None
        #: The sandbox behind it. None before `create`.
        self.sandbox: AsyncSandbox | None = None
        self._client = client
        self._own_client = client is None
        self._idle_timeout = idle_timeout

    async def create(self) -> DockerSandbox:
        """Creates the sandbox and its terminal. Returns itself. Raises RuntimeError."""
        client = self._client = self._client or AsyncBerth()
        try:
            self.sandbox = await client.sandboxes.create_from(
                _spec(self.config, self.volume_bindings, self._idle_timeout)
            )
            self.terminal = AsyncDockerizedTerminal(
                self.sandbox, self.config.work_dir, default_timeout=self.config.timeout
            )
            await self.terminal.init()
        except BaseException as error:
            await self.cleanup()
            if isinstance(error, BerthError):
                raise RuntimeError(f"Failed to create sandbox: {error.message}") from error
            raise
        return self

    async def run_command(self, cmd: str, timeout: int | None = None) -> str:
        """Runs a command in the sandbox's shell, which keeps its directory and variables. Returns the output.

        Raises SandboxTimeoutError after `timeout` seconds, by default the sandbox's.
        """
        if self.terminal is None:
            raise RuntimeError("Sandbox not initialized")
        limit = timeout or self.config.timeout
        try:
            return await self.terminal.run_command(cmd, timeout=limit)
        except builtins.TimeoutError as error:
            raise SandboxTimeoutError(f"Command execution timed out after {limit} seconds") from error

    async def read_file(self, path: str) -> str:
        """A file as text. Raises FileNotFoundError, RuntimeError."""
        try:
            return (await self.ready().files.read(path)).decode(errors="replace")
        except NotFoundError as error:
            raise builtins.FileNotFoundError(f"File not found: {path}") from error
        except BerthError as error:
            raise RuntimeError(f"Failed to read file: {error.message}") from error

    async def write_file(self, path: str, content: str) -> None:
        """Writes a file, and creates missing parent directories. Raises RuntimeError."""
        try:
            await self.ready().files.write(path, content)
        except BerthError as error:
            raise RuntimeError(f"Failed to write file: {error.message}") from error

    async def copy_from(self, src_path: str, dst_path: str) -> None:
        """Copies a file or a directory out of the sandbox. Raises FileNotFoundError, RuntimeError."""
        files = self.ready().files
        try:
            if (await files.stat(src_path)).is_dir:
                await files.download_dir(src_path, dst_path)
            else:
                Path(dst_path).parent.mkdir(parents=True, exist_ok=True)
                await files.download(src_path, dst_path)
        except NotFoundError as error:
            raise builtins.FileNotFoundError(f"Source file not found: {src_path}") from error
        except BerthError as error:
            raise RuntimeError(f"Failed to copy file: {error.message}") from error

    async def copy_to(self, src_path: str, dst_path: str) -> None:
        """Copies a local file or directory into the sandbox. Raises FileNotFoundError, RuntimeError."""
        files = self.ready().files
        if not Path(src_path).exists():
            raise builtins.FileNotFoundError(f"Source file not found: {src_path}")
        try:
            if Path(src_path).is_dir():
                await files.upload_dir(src_path, dst_path)
            else:
                await files.upload(src_path, dst_path)
        except BerthError as error:
            raise RuntimeError(f"Failed to copy file: {error.message}") from error

    async def cleanup(self, grace: float = 0) -> None:
        """Deletes the sandbox. Running operations get `grace` seconds to end. Idempotent."""
        sandbox, self.sandbox = self.sandbox, None
        terminal, self.terminal = self.terminal, None
        try:
            # Deleting the sandbox ends what runs in its terminal, so the terminal is closed last.
            if sandbox is not None:
                await sandbox.delete(grace=grace)
            if terminal is not None:
                await terminal.close()
        finally:
            if self._own_client and self._client is not None:
                client, self._client = self._client, None
                await client.close()

    async def __aenter__(self) -> DockerSandbox:
        return await self.create()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    def ready(self) -> AsyncSandbox:
        """The sandbox behind it. Raises RuntimeError before `create`."""
        if self.sandbox is None:
            raise RuntimeError("Sandbox not initialized")
        return self.sandbox


class AsyncDockerizedTerminal:
    """A bash in a sandbox that keeps its directory and variables between commands, until it is closed or its sandbox
    ends.

    Commands run one after another. The output of one is a single text: stdout, then stderr if there is any, without
    prompts. `last_exit_code` is the exit code, which OpenManus does not provide.
    """

    def __init__(
        self,
        container: DockerSandbox | AsyncSandbox,
        working_dir: str = "/workspace",
        env_vars: Mapping[str, str] | None = None,
        default_timeout: int = 60,
    ) -> None:
        self.container = container
        self.working_dir = working_dir
        self.env_vars = dict(env_vars or {})
        self.default_timeout = default_timeout
        #: Of the last command. None before the first.
        self.last_exit_code: int | None = None
        self._worker: AsyncWorker | None = None

    async def init(self) -> None:
        """Starts the bash in the working directory, which is created if missing. Raises RuntimeError."""
        sandbox = self.container if isinstance(self.container, AsyncSandbox) else self.container.ready()
        config: dict[str, Json] = {"cwd": self.working_dir, "env": dict(self.env_vars)}
        worker = AsyncWorker(sandbox.transport, f"terminal-{uuid.uuid4().hex}")
        try:
            await sandbox.files.mkdir(self.working_dir)
            await worker.create(
                SessionResource("bash", config, sandbox_id=sandbox.sandbox_id, ttl=_TERMINAL_TTL_S)
            )
        except BerthError as error:
            raise RuntimeError(f"Failed to initialize terminal: {error.message}") from error
        self._worker = worker

    async def run_command(self, cmd: str, timeout: int | None = None) -> str:
        """Runs a command and returns its output. Raises TimeoutError after `timeout` seconds, RuntimeError."""
        if self._worker is None:
            raise RuntimeError("Terminal not initialized")
        limit = timeout or self.default_timeout
        try:
            # Without its session, the tool would run in a sandbox of its own.
            [session] = await self._worker.refresh("bash")
            if session.status != "REFRESHED":
                raise RuntimeError("Failed to execute command: the terminal has ended")
            result = await self._worker.execute("bash:run", {"command": cmd}, timeout=limit)
        except BerthError as error:
            raise RuntimeError(f"Failed to execute command: {error.message}") from error
        if result.code == _TIMED_OUT:
            raise builtins.TimeoutError(f"Command execution timed out after {limit} seconds")
        if not result.ok or not isinstance(result.data, dict):
            raise RuntimeError(f"Failed to execute command: {result.message}")
        code = result.data.get("exit_code")
        self.last_exit_code = code if isinstance(code, int) else None
        parts = (str(result.data.get(name) or "").rstrip("\n") for name in ("stdout", "stderr"))
        return "\n".join(part for part in parts if part)

    async def close(self) -> None:
        """Ends the bash. Idempotent."""
        worker, self._worker = self._worker, None
        if worker is not None:
            with contextlib.suppress(BerthError):
                await worker.destroy(grace=0)

    async def __aenter__(self) -> AsyncDockerizedTerminal:
        await self.init()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SandboxManager:
    """Creates, finds and deletes sandboxes, at most `max_sandboxes` at once.

    `idle_timeout`: seconds without use after which the service deletes a sandbox. `cleanup_interval` only appears in
    `get_stats`: how often the service checks is its own setting.
    """

    def __init__(
        self,
        max_sandboxes: int = 100,
        idle_timeout: int = 3600,
        cleanup_interval: int = 300,
        *,
        client: AsyncBerth | None = None,
    ) -> None:
        self.max_sandboxes = max_sandboxes
        self.idle_timeout = idle_timeout
        self.cleanup_interval = cleanup_interval
        self._client = client
        self._own_client = client is None
        self._sandboxes: dict[str, DockerSandbox] = {}
        self._last_used: dict[str, float] = {}
        self._active: dict[str, int] = {}
        #: One for each create that is under way, done at its end. Each has a place.
        self._creates: set[asyncio.Future[None]] = set()
        self._is_shutting_down = False

    async def ensure_image(self, image: str) -> bool:
        """Whether a sandbox can be created from an image, which is pulled if missing."""
        try:
            async with self._berth().sandboxes.create(image):
                return True
        except ImageUnavailableError:
            return False

    async def create_sandbox(
        self, config: SandboxSettings | None = None, volume_bindings: Mapping[str, str] | None = None
    ) -> str:
        """Creates a sandbox and returns its id.

        Raises RuntimeError: "Maximum number of sandboxes (N) reached", "Failed to ensure Docker image: …", "Failed to
        create sandbox: …".
        """
        if self._is_full() and not self._is_shutting_down:
            await self._forget_ended()
        if self._is_shutting_down:
            raise RuntimeError(_SHUTTING_DOWN)
        if self._is_full():
            raise RuntimeError(f"Maximum number of sandboxes ({self.max_sandboxes}) reached")
        settings = config or SandboxSettings()
        sandbox = DockerSandbox(
            settings, volume_bindings, client=self._berth(), idle_timeout=self.idle_timeout
        )
        # Reserves a place before the next await; released below.
        create: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._creates.add(create)
        try:
            await sandbox.create()
            if self._is_shutting_down:
                await sandbox.cleanup()
                raise RuntimeError(_SHUTTING_DOWN)
        except RuntimeError as error:
            cause = error.__cause__
            if isinstance(cause, ImageUnavailableError):
                raise RuntimeError(f"Failed to ensure Docker image: {settings.image}") from cause
            raise
        finally:
            self._creates.remove(create)
            create.set_result(None)
        sandbox_id = sandbox.ready().sandbox_id
        self._sandboxes[sandbox_id] = sandbox
        self._last_used[sandbox_id] = time.time()
        return sandbox_id

    async def get_sandbox(self, sandbox_id: str) -> DockerSandbox:
        """A sandbox that this manager created. Raises KeyError: "Sandbox … not found"."""
        async with self.sandbox_operation(sandbox_id) as sandbox:
            return sandbox

    @contextlib.asynccontextmanager
    async def sandbox_operation(self, sandbox_id: str) -> AsyncGenerator[DockerSandbox, None]:
        """Marks a sandbox as active for the block. Raises KeyError: "Sandbox … not found"."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None:
            raise KeyError(f"Sandbox {sandbox_id} not found")
        self._active[sandbox_id] = self._active.get(sandbox_id, 0) + 1
        try:
            try:
                await sandbox.ready().keep_alive()
            except (SandboxNotFoundError, SandboxNotRunningError) as error:
                self._forget(sandbox_id)
                raise KeyError(f"Sandbox {sandbox_id} not found") from error
            self._last_used[sandbox_id] = time.time()
            yield sandbox
        finally:
            self._active[sandbox_id] -= 1
            if self._active[sandbox_id] == 0:
                del self._active[sandbox_id]

    async def delete_sandbox(self, sandbox_id: str) -> None:
        """Deletes a sandbox. Running operations get 5 s to end. An unknown id is not an error."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None:
            self._forget(sandbox_id)
            await sandbox.cleanup(_DELETE_GRACE_S)

    async def start_cleanup_task(self) -> None:
        """Does nothing: the service deletes idle sandboxes itself, also after this program has ended."""

    async def cleanup(self) -> None:
        """Deletes all sandboxes that it created, and creates no more. Waits for creates that are under way."""
        self._is_shutting_down = True
        try:
            results = await asyncio.gather(
                *(self.delete_sandbox(sandbox_id) for sandbox_id in list(self._sandboxes)),
                return_exceptions=True,
            )
            # Each deletes its own sandbox.
            if self._creates:
                await asyncio.wait(self._creates)
        finally:
            if self._own_client and self._client is not None:
                client, self._client = self._client, None
                await client.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def get_stats(self) -> dict[str, Union[int, bool]]:
        """{"total_sandboxes", "active_operations", "max_sandboxes", "idle_timeout", "cleanup_interval",
        "is_shutting_down"}.

        Covers the sandboxes of this manager. For those of the service: `AsyncBerth().sandboxes.stats()`. One that the
        service deleted counts until a use of it, or a create at the limit, finds it gone.
        """
        return {
            "total_sandboxes": len(self._sandboxes),
            "active_operations": sum(self._active.values()),
            "max_sandboxes": self.max_sandboxes,
            "idle_timeout": self.idle_timeout,
            "cleanup_interval": self.cleanup_interval,
            "is_shutting_down": self._is_shutting_down,
        }

    async def __aenter__(self) -> SandboxManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cleanup()

    def _berth(self) -> AsyncBerth:
        if self._client is None:
            self._client = AsyncBerth()
        return self._client

    def _is_full(self) -> bool:
        return len(self._sandboxes) + len(self._creates) >= self.max_sandboxes

    async def _forget_ended(self) -> None:
        """Forgets the sandboxes that the service has deleted, such as idle ones."""
        # Not those that are created meanwhile, which may be missing in the list.
        created = list(self._sandboxes)
        try:
            live = {info.sandbox_id for info in await self._berth().sandboxes.list()}
        except BerthError as error:
            raise RuntimeError(f"Failed to create sandbox: {error.message}") from error
        for sandbox_id in created:
            if sandbox_id not in live:
                self._forget(sandbox_id)

    def _forget(self, sandbox_id: str) -> None:
        self._sandboxes.pop(sandbox_id, None)
        self._last_used.pop(sandbox_id, None)


class BaseSandboxClient(ABC):
    """The interface of a client for one sandbox."""

    @abstractmethod
    async def create(
        self, config: SandboxSettings | None = None, volume_bindings: Mapping[str, str] | None = None
    ) -> None:
        """Creates the sandbox."""

    @abstractmethod
    async def run_command(self, command: str, timeout: int | None = None) -> str:
        """Runs a command."""

    @abstractmethod
    async def copy_from(self, container_path: str, local_path: str) -> None:
        """Copies a file or directory out of the sandbox."""

    @abstractmethod
    async def copy_to(self, local_path: str, container_path: str) -> None:
        """Copies a file or directory into the sandbox."""

    @abstractmethod
    async def read_file(self, path: str) -> str:
        """Reads a file."""

    @abstractmethod
    async def write_file(self, path: str, content: str) -> None:
        """Writes a file."""

    @abstractmethod
    async def cleanup(self) -> None:
        """Deletes the sandbox."""


class LocalSandboxClient(BaseSandboxClient):
    """One sandbox, created by `create`. Before that, methods raise RuntimeError: "Sandbox not initialized"."""

    def __init__(self, client: AsyncBerth | None = None) -> None:
        self.sandbox: DockerSandbox | None = None
        self._client = client

    async def create(
        self, config: SandboxSettings | None = None, volume_bindings: Mapping[str, str] | None = None
    ) -> None:
        """Creates the sandbox. Deletes an existing one first."""
        await self.cleanup()
        sandbox = DockerSandbox(config, volume_bindings, client=self._client)
        self.sandbox = await sandbox.create()

    async def run_command(self, command: str, timeout: int | None = None) -> str:
        """See DockerSandbox.run_command."""
        return await self._ready().run_command(command, timeout)

    async def copy_from(self, container_path: str, local_path: str) -> None:
        """See DockerSandbox.copy_from."""
        await self._ready().copy_from(container_path, local_path)

    async def copy_to(self, local_path: str, container_path: str) -> None:
        """See DockerSandbox.copy_to."""
        await self._ready().copy_to(local_path, container_path)

    async def read_file(self, path: str) -> str:
        """See DockerSandbox.read_file."""
        return await self._ready().read_file(path)

    async def write_file(self, path: str, content: str) -> None:
        """See DockerSandbox.write_file."""
        await self._ready().write_file(path, content)

    async def cleanup(self) -> None:
        """Deletes the sandbox, if there is one. Idempotent."""
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.cleanup()

    def _ready(self) -> DockerSandbox:
        if self.sandbox is None:
            raise RuntimeError("Sandbox not initialized")
        return self.sandbox


def create_sandbox_client() -> LocalSandboxClient:
    """A client with its own sandbox."""
    return LocalSandboxClient()


#: OpenManus's global client. An agent's run does not clean it up, because other runs may use it. An agent's own client
#: is `BaseAgent.sandbox_client`.
SANDBOX_CLIENT = create_sandbox_client()


class AgentState(str, enum.Enum):
    """The state of an agent."""

    IDLE = "IDLE"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    ERROR = "ERROR"


Role = Literal["user", "system", "assistant", "tool"]
_ROLES: Mapping[str, Literal["USER", "SYSTEM", "ASSISTANT", "TOOL"]] = {
    "user": "USER",
    "system": "SYSTEM",
    "assistant": "ASSISTANT",
    "tool": "TOOL",
}


@dataclass
class Message:
    """A message in an agent's memory."""

    role: str
    content: str | None = None
    base64_image: str | None = None
    tool_call_id: str | None = None

    @classmethod
    def user_message(cls, content: str) -> Message:
        """A message of the user."""
        return cls("user", content)

    @classmethod
    def system_message(cls, content: str) -> Message:
        """A message of the system."""
        return cls("system", content)

    @classmethod
    def assistant_message(cls, content: str | None = None) -> Message:
        """A message of the agent."""
        return cls("assistant", content)


@dataclass
class Memory:
    """An agent's newest messages."""

    messages: list[Message] = field(default_factory=list[Message])
    max_messages: int = 100

    def add_message(self, message: Message) -> None:
        """Adds a message. Beyond `max_messages`, removes the oldest."""
        self.add_messages([message])

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Adds several messages."""
        self.messages = [*self.messages, *messages][-self.max_messages :]

    def clear(self) -> None:
        """Removes all messages."""
        self.messages = []

    def get_recent_messages(self, n: int) -> list[Message]:
        """The newest n messages."""
        return self.messages[-n:] if n > 0 else []


class BaseAgent(ABC):
    """An agent that works in steps. Write `step`, and set `state` to AgentState.FINISHED in it when the work is done.

    `run` is a run of the service, which counts the steps, enforces the time limits, and cleans up if this program dies.
    `sandbox_client` is the agent's own sandbox, deleted at the end of each run.
    """

    def __init__(
        self,
        name: str = "",
        description: str | None = None,
        *,
        system_prompt: str | None = None,
        next_step_prompt: str | None = None,
        memory: Memory | None = None,
        max_steps: int = 10,
        duplicate_threshold: int = 2,
        client: AsyncBerth | None = None,
        sandbox_client: BaseSandboxClient | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.system_prompt = system_prompt
        self.next_step_prompt = next_step_prompt
        self.memory = memory or Memory()
        self.state = AgentState.IDLE
        self.max_steps = max_steps
        #: The current step. 0 before the first, and after the maximum.
        self.current_step = 0
        self.duplicate_threshold = duplicate_threshold
        #: The service's result of the last run.
        self.last_run: AgentRun | None = None
        self.sandbox_client: BaseSandboxClient = sandbox_client or LocalSandboxClient(client)
        self._client = client

    @abstractmethod
    async def step(self) -> str:
        """Does one step and returns a description of the result. If it raises, the run ends in ERROR."""

    @contextlib.asynccontextmanager
    async def state_context(self, new_state: AgentState) -> AsyncGenerator[None, None]:
        """Sets the state for the block, and restores the previous one at its end. If the block fails, sets ERROR
        meanwhile.
        """
        if new_state not in list(AgentState):
            raise ValueError(f"Invalid state: {new_state}")
        previous = self.state
        self.state = new_state
        try:
            yield
        except BaseException:
            self.state = AgentState.ERROR
            raise
        finally:
            self.state = previous

    def update_memory(self, role: str, content: str, base64_image: str | None = None, tool_call_id: str | None = None) -> None:
        """Adds a message. Raises ValueError: "Unsupported message role: …"."""
        if role not in _ROLES:
            raise ValueError(f"Unsupported message role: {role}")
        self.memory.add_message(Message(role, content, base64_image, tool_call_id))

    async def run(self, request: str | None = None) -> str:
        """Does steps until it is FINISHED or has done `max_steps`. Returns a line per step: "Step 1: …".

        Raises RuntimeError: "Cannot run agent from state: …" unless it is IDLE, and what a step raised. Afterwards the
        agent is IDLE again; `last_run` says how it ended.
        """
        if self.state is not AgentState.IDLE:
            raise RuntimeError(f"Cannot run agent from state: {self.state}")
        if request:
            self.update_memory("user", request)
        async with contextlib.AsyncExitStack() as stack:
            berth = self._client
            if berth is None:
                berth = await stack.enter_async_context(AsyncBerth())
            stack.push_async_callback(self.sandbox_client.cleanup)
            loop = _Loop(self, berth)
            stack.push_async_callback(loop.close)
            async with self.state_context(AgentState.RUNNING):
                self.current_step = 0
                self.last_run = await loop.run(request or "")
        self.current_step = 0 if self.last_run.outcome == "MAX_STEPS" else self.current_step
        return self.last_run.summary

    def is_stuck(self) -> bool:
        """Whether the last message equals `duplicate_threshold` earlier messages of the agent."""
        if len(self.memory.messages) < 2:
            return False
        last = self.memory.messages[-1]
        if not last.content:
            return False
        earlier = self.memory.messages[:-1]
        same = sum(each.role == "assistant" and each.content == last.content for each in earlier)
        return same >= self.duplicate_threshold

    def handle_stuck_state(self) -> None:
        """Adds a warning before the prompt of the next step, once."""
        prompt = self.next_step_prompt or ""
        if not prompt.startswith(STUCK_PROMPT):
            self.next_step_prompt = f"{STUCK_PROMPT}\n{prompt}"

    @property
    def messages(self) -> list[Message]:
        """The messages in its memory."""
        return self.memory.messages

    @messages.setter
    def messages(self, value: list[Message]) -> None:
        self.memory.messages = value


class _Loop(Agent):
    """The service's run of a BaseAgent."""

    def __init__(self, agent: BaseAgent, berth: AsyncBerth) -> None:
        super().__init__(
            berth,
            name=agent.name,
            max_steps=agent.max_steps,
            duplicate_threshold=agent.duplicate_threshold,
            next_step_prompt=agent.next_step_prompt or "",
        )
        self._agent = agent

    async def step(self, step: Step) -> StepResult:
        agent = self._agent
        agent.current_step = step.number
        # Keeps the messages alive: Python gives the id of a message that is gone to a new one.
        known = {id(message): message for message in agent.memory.messages}
        result = await agent.step()
        if agent.is_stuck():
            agent.handle_stuck_state()
        added = [message for message in agent.memory.messages if id(message) not in known]
        return StepResult(
            result,
            finished=agent.state is AgentState.FINISHED,
            # A report may have 100 messages, as many as a run keeps.
            messages=[RunMessage(_ROLES[each.role], each.content or "") for each in added[-100:]],
        )


def _spec(config: SandboxSettings, bindings: Mapping[str, str], idle_timeout: float | None) -> SandboxSpec:
    return SandboxSpec(
        image=config.image,
        working_dir=config.work_dir,
        memory_bytes=_bytes_of(config.memory_limit),
        cpu_millis=round(config.cpu_limit * 1000),
        command_timeout=config.timeout,
        network="EGRESS" if config.network_enabled else "NONE",
        mounts=[Mount(target, host_path=source) for source, target in bindings.items()],
        idle_timeout=idle_timeout,
    )


def _bytes_of(limit: str) -> int:
    """Converts Docker's "512m" to bytes."""
    match = re.fullmatch(r"(\d+)([bkmg]?)b?", limit.strip().lower())
    if match is None:
        raise ValueError(f'{limit!r} is not an amount of memory: write "512m" or "1g"')
    return int(match[1]) * _UNITS[match[2] or "b"]
