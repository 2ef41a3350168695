"""OpenManus's names: the shapes and messages that code written for them expects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from berth import AsyncBerth
from berth.openmanus import (
    SANDBOX_CLIENT,
    STUCK_PROMPT,
    AgentState,
    AsyncDockerizedTerminal,
    BaseAgent,
    DockerSandbox,
    LocalSandboxClient,
    Memory,
    Message,
    SandboxError,
    SandboxManager,
    SandboxSettings,
    SandboxTimeoutError,
    create_sandbox_client,
)
from conftest import Link

#: The service's own image: the engine of these tests has no other.
SETTINGS = SandboxSettings(image="", timeout=60)


def test_settings_have_the_defaults_of_the_document() -> None:
    settings = SandboxSettings()
    assert settings.image == "python:3.12-slim" and settings.work_dir == "/workspace"
    assert (settings.memory_limit, settings.cpu_limit, settings.timeout) == ("512m", 1.0, 300)
    assert not settings.network_enabled
    manager = SandboxManager()
    assert manager.get_stats() == {
        "total_sandboxes": 0,
        "active_operations": 0,
        "max_sandboxes": 100,
        "idle_timeout": 3600,
        "cleanup_interval": 300,
        "is_shutting_down": False,
    }


async def test_a_manager_makes_finds_and_deletes(berth: AsyncBerth) -> None:
    async with SandboxManager(max_sandboxes=2, idle_timeout=120) as manager:
        first = await manager.create_sandbox(SETTINGS)
        second = await manager.create_sandbox(SETTINGS)
        assert (await berth.sandboxes.get(first)).info.spec.idle_timeout == 120
        with pytest.raises(RuntimeError, match=r"^Maximum number of sandboxes \(2\) reached$"):
            await manager.create_sandbox(SETTINGS)
        async with manager.sandbox_operation(first) as sandbox:
            assert manager.get_stats()["active_operations"] == 1
            assert await sandbox.run_command("echo hello") == "hello"
        assert manager.get_stats()["active_operations"] == 0
        await manager.delete_sandbox(first)
        await manager.delete_sandbox("unknown")
        assert manager.get_stats()["total_sandboxes"] == 1
        with pytest.raises(KeyError, match=f"Sandbox {first} not found"):
            await manager.get_sandbox(first)
        # A sandbox that ended by itself is not found either, and its place is free.
        await berth.sandboxes.delete(second, grace=0)
        with pytest.raises(KeyError, match=f"Sandbox {second} not found"):
            await manager.get_sandbox(second)
        third = await manager.create_sandbox(SETTINGS)
    assert (await berth.sandboxes.get(third)).info.state == "TERMINATED"
    assert manager.get_stats()["is_shutting_down"]
    with pytest.raises(RuntimeError, match="shutting down"):
        await manager.create_sandbox(SETTINGS)


async def test_creates_at_once_share_the_places() -> None:
    async with SandboxManager(max_sandboxes=3) as manager:
        made = await asyncio.gather(
            *(manager.create_sandbox(SETTINGS) for _ in range(6)), return_exceptions=True
        )
        assert sum(isinstance(each, str) for each in made) == 3
        assert manager.get_stats()["total_sandboxes"] == 3


async def test_a_sandbox_that_the_service_deleted_takes_no_place(berth: AsyncBerth) -> None:
    async with SandboxManager(max_sandboxes=2) as manager:
        first = await manager.create_sandbox(SETTINGS)
        second = await manager.create_sandbox(SETTINGS)
        await berth.sandboxes.delete(first, grace=0)
        made = await asyncio.gather(
            *(manager.create_sandbox(SETTINGS) for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(each, str) for each in made) == 1
        assert manager.get_stats()["total_sandboxes"] == 2
        assert await (await manager.get_sandbox(second)).run_command("echo hello") == "hello"


async def test_what_is_being_created_during_a_cleanup_is_deleted_too(berth: AsyncBerth, link: Link) -> None:
    async def live() -> set[str]:
        return {info.sandbox_id for info in await berth.sandboxes.list()}

    before = await live()
    async with AsyncBerth(link.address) as client, SandboxManager(client=client) as manager:
        await client.sandboxes.stats()
        link.passing.clear()
        creating = asyncio.create_task(manager.create_sandbox(SETTINGS))
        while not await live() - before:
            await asyncio.sleep(0.02)
        cleaning = asyncio.create_task(manager.cleanup())
        await asyncio.sleep(0)
        assert manager.get_stats()["is_shutting_down"]
        link.passing.set()
        await cleaning
        assert not await live() - before
        with pytest.raises(RuntimeError, match="shutting down"):
            await creating


async def test_a_bad_image_gives_its_place_back() -> None:
    async with SandboxManager(max_sandboxes=1) as manager:
        with pytest.raises(RuntimeError):
            await manager.create_sandbox(SandboxSettings(image="no/such:image"))
        await manager.create_sandbox(SETTINGS)
    with pytest.raises(ValueError, match="512m"):
        await DockerSandbox(SandboxSettings(memory_limit="much")).create()


async def test_a_sandbox_keeps_state_and_files(tmp_path: Path) -> None:
    async with DockerSandbox(SETTINGS) as sandbox:
        assert await sandbox.run_command("cd /tmp; export A=1; pwd") == "/tmp"
        assert await sandbox.run_command("echo $A $PWD; echo err >&2") == "1 /tmp\nerr"
        # Text that looks like a prompt is output.
        assert await sandbox.run_command("printf 'a$ \\nb\\n\\nc'") == "a$ \nb\n\nc"
        assert sandbox.terminal is not None
        await sandbox.run_command("(exit 5)")
        assert sandbox.terminal.last_exit_code == 5
        with pytest.raises(SandboxTimeoutError, match="timed out after 1 seconds") as raised:
            await sandbox.run_command("sleep 1000", timeout=1)
        assert isinstance(raised.value, SandboxError)
        assert await sandbox.run_command("echo after") == "after"
        await sandbox.write_file("/workspace/a/b.txt", "text é")
        assert await sandbox.read_file("/workspace/a/b.txt") == "text é"
        with pytest.raises(FileNotFoundError, match="File not found: /nothing"):
            await sandbox.read_file("/nothing")
        await sandbox.copy_from("/workspace/a", str(tmp_path / "out"))
        assert (tmp_path / "out/b.txt").read_text() == "text é"
        await sandbox.copy_from("/workspace/a/b.txt", str(tmp_path / "sub/one.txt"))
        await sandbox.copy_to(str(tmp_path / "out"), "/workspace/back")
        await sandbox.copy_to(str(tmp_path / "sub/one.txt"), "/workspace/two.txt")
        assert await sandbox.run_command("cat /workspace/back/b.txt /workspace/two.txt") == "text étext é"
        with pytest.raises(FileNotFoundError, match="Source file not found"):
            await sandbox.copy_to(str(tmp_path / "nothing"), "/workspace/x")
        with pytest.raises(FileNotFoundError, match="Source file not found"):
            await sandbox.copy_from("/nothing", str(tmp_path / "x"))
    with pytest.raises(RuntimeError, match="Sandbox not initialized"):
        await sandbox.run_command("true")


async def test_commands_at_once_run_one_after_the_other() -> None:
    async with DockerSandbox(SETTINGS) as sandbox:
        outputs = await asyncio.gather(
            *(sandbox.run_command(f"echo {number}; sleep 0.1; echo {number}") for number in range(4))
        )
        assert outputs == [f"{number}\n{number}" for number in range(4)]


async def test_a_terminal_has_its_directory_and_variables() -> None:
    async with DockerSandbox(SETTINGS) as sandbox:
        async with AsyncDockerizedTerminal(sandbox, "/tmp/made/here", {"A": "b"}) as terminal:
            assert await terminal.run_command("echo $A in $PWD") == "b in /tmp/made/here"
            with pytest.raises(TimeoutError):
                await terminal.run_command("sleep 1000", timeout=1)
        with pytest.raises(RuntimeError, match="Terminal not initialized"):
            await terminal.run_command("true")


async def test_a_terminal_is_never_another_sandbox(berth: AsyncBerth) -> None:
    async with DockerSandbox(SETTINGS, client=berth) as sandbox:
        sandbox_id = sandbox.ready().sandbox_id
        [session] = [each for each in await berth.sessions.list() if each.sandbox_id == sandbox_id]
        # The longest that a sandbox can stay idle.
        assert session.ttl == 24 * 24 * 3600
        await berth.worker(session.worker_id).destroy()
        outcomes = await asyncio.gather(sandbox.run_command("pwd"), return_exceptions=True)
        assert [repr(each) for each in outcomes] == [
            "RuntimeError('Failed to execute command: the terminal has ended')"
        ]


async def test_a_local_client() -> None:
    client = create_sandbox_client()
    assert isinstance(client, LocalSandboxClient) and isinstance(SANDBOX_CLIENT, LocalSandboxClient)
    with pytest.raises(RuntimeError, match="^Sandbox not initialized$"):
        await client.run_command("true")
    await client.create(SETTINGS)
    await client.write_file("a", "b")
    assert await client.read_file("a") == "b" and await client.run_command("cat a") == "b"
    await client.cleanup()
    await client.cleanup()


class Scripted(BaseAgent):
    """Says one thing per step."""

    says: list[str] = []
    prompts: list[str | None] = []

    async def step(self) -> str:
        assert self.state is AgentState.RUNNING
        self.prompts.append(self.next_step_prompt)
        word = self.says[min(self.current_step, len(self.says)) - 1]
        if word == "fail":
            raise ValueError("it broke")
        self.update_memory("assistant", word)
        if word == "done":
            self.state = AgentState.FINISHED
        return word


def scripted(*says: str, max_steps: int = 10) -> Scripted:
    agent = Scripted("scripted", max_steps=max_steps, next_step_prompt="Go on.")
    agent.says, agent.prompts = list(says), []
    return agent


async def test_a_run_goes_to_its_end_and_again() -> None:
    agent = scripted("looked", "done")
    assert await agent.run("Do it.") == "Step 1: looked\nStep 2: done"
    assert (agent.state, agent.current_step) == (AgentState.IDLE, 2)
    assert agent.last_run is not None and agent.last_run.outcome == "FINISHED"
    assert [(each.role, each.content) for each in agent.messages] == [
        ("user", "Do it."),
        ("assistant", "looked"),
        ("assistant", "done"),
    ]
    assert await agent.run() == "Step 1: looked\nStep 2: done"


async def test_the_maximum_of_steps() -> None:
    agent = scripted("a", "b", "c", max_steps=2)
    assert await agent.run() == "Step 1: a\nStep 2: b\nTerminated: Reached max steps (2)"
    assert (agent.state, agent.current_step) == (AgentState.IDLE, 0)
    assert await scripted("a", "done", max_steps=2).run() == "Step 1: a\nStep 2: done"


async def test_a_step_that_fails() -> None:
    agent = scripted("a", "fail")
    states: list[AgentState] = []
    with pytest.raises(ValueError, match="it broke"):
        async with agent.state_context(AgentState.RUNNING):
            try:
                raise ValueError("it broke")
            finally:
                states.append(agent.state)
    assert (states, agent.state) == ([AgentState.RUNNING], AgentState.IDLE)
    with pytest.raises(ValueError, match="it broke"):
        await agent.run()
    assert agent.state is AgentState.IDLE


async def test_a_run_starts_only_from_idle() -> None:
    agent = scripted("done")
    agent.state = AgentState.FINISHED
    with pytest.raises(RuntimeError, match="^Cannot run agent from state: "):
        await agent.run()
    with pytest.raises(ValueError, match="Invalid state: BUSY"):
        async with agent.state_context("BUSY"):  # type: ignore[arg-type] # pyright: ignore
            pass


async def test_going_round_in_circles_is_warned_of_once() -> None:
    agent = scripted("same", "same", "same", "same", "done")
    assert not agent.is_stuck()
    await agent.run()
    warned = f"{STUCK_PROMPT}\nGo on."
    assert agent.prompts == ["Go on.", "Go on.", "Go on.", warned, warned]


async def test_a_run_has_all_messages_also_if_the_memory_has_only_the_newest(berth: AsyncBerth) -> None:
    class Talking(BaseAgent):
        heard: list[str] = []

        async def step(self) -> str:
            if self.current_step == self.max_steps:
                run = next(each for each in await berth.runs.list() if each.name == self.name)
                messages = (await berth.runs.get(run.run_id, include_messages=True)).messages
                self.heard = [each.content for each in messages]
            self.update_memory("assistant", f"thought {self.current_step}")
            self.update_memory("tool", f"result {self.current_step}")
            return "done"

    agent = Talking("talking", memory=Memory(max_messages=2), max_steps=6, client=berth)
    await agent.run()
    assert agent.heard == [f"{what} {number}" for number in range(1, 6) for what in ("thought", "result")]


def test_memory() -> None:
    agent = scripted("x")
    with pytest.raises(ValueError, match="Unsupported message role: critic"):
        agent.update_memory("critic", "no")
    agent.memory = Memory(max_messages=3)
    for number in range(5):
        agent.memory.add_message(Message.user_message(str(number)))
    assert [each.content for each in agent.memory.get_recent_messages(2)] == ["3", "4"]
    assert len(agent.messages) == 3 and agent.memory.get_recent_messages(0) == []
    # Equal messages of others do not make it stuck, and neither do empty ones.
    agent.messages = [Message.user_message("a")] * 5
    assert not agent.is_stuck()
    agent.messages = [Message.assistant_message("")] * 5
    assert not agent.is_stuck()
    agent.messages = [Message.assistant_message("a")] * 3
    assert agent.is_stuck()


async def test_the_agents_own_sandbox_goes_with_its_run(berth: AsyncBerth) -> None:
    class Working(BaseAgent):
        sandbox_id = ""

        async def step(self) -> str:
            await self.sandbox_client.create(SETTINGS)
            assert isinstance(self.sandbox_client, LocalSandboxClient) and self.sandbox_client.sandbox is not None
            self.sandbox_id = self.sandbox_client.sandbox.ready().sandbox_id
            self.state = AgentState.FINISHED
            return await self.sandbox_client.run_command("echo done")

    agent = Working()
    assert await agent.run() == "Step 1: done"
    assert (await berth.sandboxes.get(agent.sandbox_id)).info.state == "TERMINATED"


async def test_what_is_active_in_a_sandbox_may_end_before_that_is_deleted(berth: AsyncBerth) -> None:
    async with SandboxManager() as manager:
        sandbox_id = await manager.create_sandbox(SETTINGS)
        sandbox = await manager.get_sandbox(sandbox_id)
        running = asyncio.create_task(sandbox.run_command("touch started; sleep 1; echo finished"))
        while not await sandbox.ready().files.exists("started"):
            await asyncio.sleep(0.02)
        await manager.delete_sandbox(sandbox_id)
        assert await running == "finished"
        assert (await berth.sandboxes.get(sandbox_id)).info.state == "TERMINATED"
