"""AgentFlow's Sandbox: every block of its page on sessions, and the shapes of the results."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import berth
from berth import AsyncBerth, errors
from berth.agentflow import Sandbox
from berth.v1 import session_pb2, session_pb2_grpc
from session_document import BLOCKS, ON_PYTHON

#: The session types on which the blocks run: the page's own if the service has desktops (it is started with such an
#: image only for these tests), and always the replacement.
VM = pytest.param({}, marks=pytest.mark.vm, id="vm")
PYTHON = pytest.param(ON_PYTHON, id="python")


class Recorded(Sandbox):
    """A Sandbox that records the results of its calls, and the workers."""

    answers: list[tuple[str, Any]] = []
    workers: list[str] = []

    def __init__(self) -> None:
        super().__init__()
        self.workers.append(self.worker_id)

    async def create_session(self, *args: Any, **more: Any) -> Any:
        return self._keep("create_session", await super().create_session(*args, **more))

    async def execute(self, *args: Any, **more: Any) -> Any:
        return self._keep("execute", await super().execute(*args, **more))

    async def destroy_session(self, *args: Any, **more: Any) -> Any:
        return self._keep("destroy_session", await super().destroy_session(*args, **more))

    async def refresh_sessions(self, *args: Any, **more: Any) -> Any:
        return self._keep("refresh_sessions", await super().refresh_sessions(*args, **more))

    def _keep(self, name: str, answer: Any) -> Any:
        self.answers.append((name, answer))
        return answer


async def run_block(name: str, words: Mapping[str, str]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Runs a block. Returns what it printed and the results of its calls."""
    text = BLOCKS[name]
    for word, instead in words.items():
        text = text.replace(word, instead)
    printed: list[Any] = []
    names: dict[str, Any] = {"Sandbox": Recorded, "print": printed.append}
    Recorded.answers, Recorded.workers = [], []
    code = compile(text, f"<{name}>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = types.FunctionType(code, names)
    if "async with" in text:
        assert inspect.iscoroutinefunction(running)
        await running()
    else:
        async with Recorded() as sandbox:
            names["sandbox"] = sandbox
            await running()
    return printed, Recorded.answers


@pytest.mark.parametrize("words", [VM, PYTHON])
@pytest.mark.parametrize("name", BLOCKS)
async def test_a_block_of_the_page_runs(name: str, words: Mapping[str, str], berth: AsyncBerth) -> None:
    printed, answers = await run_block(name, words)
    kind = "python" if words else "vm"
    for call, answer in answers:
        if call == "execute":
            assert (answer["code"], answer["message"]) == (0, "success"), answer
            assert answer["meta"]["resource_type"] == kind
        else:
            assert answer["status"] == "success", answer
    temporary = [answer["meta"]["temporary_session"] for call, answer in answers if call == "execute"]
    assert temporary == {"reused": [False] * 3, "temporary": [True] * 2, "modes": [False] * 3 + [True]}.get(name, [])
    if name == "reused":
        assert answers[0][1]["session_id"].rsplit("_", 1)[0].endswith("_my_vm")
        assert len({answer["meta"]["session_id"] for call, answer in answers if call == "execute"}) == 1
    if name == "reinitialize":
        config = {"cwd": "/tmp"} if words else {"screen_size": [2560, 1440]}
        [result] = printed
        assert result["status"] == "success" and result["config_applied"] == config
        assert result["old_session_id"] != result["new_session_id"]
        # Whole numbers are ints, as the page prints them.
        assert words or str(result["config_applied"]) == "{'screen_size': [2560, 1440]}"
    if name == "list":
        [result] = printed
        assert sorted((each["resource_type"], each["status"]) for each in result["sessions"]) == sorted(
            [(kind, "active"), ("bash", "active")]
        )
    # Nothing is left behind.
    assert len(Recorded.workers) == 1
    assert await berth.sessions.list(worker_id=Recorded.workers[0]) == []


def test_the_name_at_the_top_is_the_same_class() -> None:
    assert berth.Sandbox is Sandbox


async def test_the_answer_of_a_tool() -> None:
    async with Sandbox(worker_id=f"shape-{os.getpid()}") as sandbox:
        answer = await sandbox.execute("bash:run", {"command": "echo hi; exit 3"}, trace_id="t")
        assert set(answer) == {"code", "message", "data", "meta"}
        assert isinstance(answer["data"], dict) and type(answer["data"]["exit_code"]) is int
        meta = answer["meta"]
        assert isinstance(meta, dict) and set(meta) == {
            "tool",
            "full_name",
            "resource_type",
            "session_id",
            "temporary_session",
            "trace_id",
            "execution_time_ms",
        }
        assert (meta["tool"], meta["full_name"], meta["trace_id"]) == ("run", "bash:run", "t")
        late = await sandbox.execute("bash:run", {"command": "sleep 1000"}, timeout=0.3)
        assert late["code"] == 5006
        with pytest.raises(errors.ToolNotFoundError):
            await sandbox.execute("bash:nothing")


async def test_sessions_by_a_list_and_by_a_dict() -> None:
    async with Sandbox() as sandbox:
        made = await sandbox.create_session({"bash": {"cwd": "/tmp"}, "python": {}})
        assert made["status"] == "success"
        assert isinstance(made["sessions"], dict) and list(made["sessions"]) == ["bash", "python"]
        again = await sandbox.create_session("bash")
        assert again["status"] == "exists" and again["config"] == {"cwd": "/tmp"}
        partly = await sandbox.create_session(["bash", "nothing"])
        assert partly["status"] == "partial" and isinstance(partly["sessions"], dict)
        failed = partly["sessions"]["nothing"]
        assert isinstance(failed, dict) and failed["status"] == "error" and "nothing" in str(failed["error"])
        alone = await sandbox.create_session("nothing")
        assert alone["status"] == "error" and alone["resource_type"] == "nothing"
        assert await sandbox.refresh_sessions("files") == {"status": "not_found", "refreshed": {"files": False}}
        assert await sandbox.destroy_session(["bash", "files"]) == {"status": "not_found", "destroyed": ["bash"]}
        assert await sandbox.destroy_session() == {"status": "success", "destroyed": ["python"]}
        assert await sandbox.list_sessions() == {"sessions": []}


async def test_a_batch() -> None:
    async with Sandbox() as sandbox:
        await sandbox.create_session("bash")
        answer = await sandbox.execute_batch(
            [
                {"action": "bash:run", "params": {"command": "echo 1"}},
                ("bash:run", {"command": "echo 2"}),
                {"action": "bash:nothing"},
                {"action": "bash:run", "params": {"command": "echo 3"}},
            ],
            stop_on_error=True,
        )
        assert answer["code"] == 4001 and isinstance(answer["data"], dict)
        results = answer["data"]["results"]
        assert isinstance(results, list) and [isinstance(each, dict) and each["code"] for each in results] == [
            0,
            0,
            4001,
            4001,
        ]
        assert (answer["data"]["executed"], answer["data"]["success_count"]) == (3, 2)
        with pytest.raises(TypeError, match='"action": "bash:run"'):
            await sandbox.execute_batch([{"tool_name": "bash:run"}])


async def test_tools_and_what_is_offered() -> None:
    async with Sandbox() as sandbox:
        [tool] = await sandbox.get_tools("bash")
        assert (tool["name"], tool["full_name"], tool["resource_type"]) == ("run", "bash:run", "bash")
        assert isinstance(tool["parameters"], dict) and tool["parameters"]["type"] == "object"
        assert await sandbox.warmup("bash") == {"status": "success", "resources": {"bash": True}}
        assert await sandbox.warmup(["bash", "no"]) == {"status": "error", "resources": {"bash": True, "no": False}}
        assert (await sandbox.get_status())["status"] == "running"


def test_the_twins_without_asyncio(sync_berth: berth.Berth) -> None:
    with Sandbox() as sandbox:
        assert sandbox.create_session_sync("bash")["status"] == "success"
        sandbox.execute_sync("bash:run", {"command": "x=1"})
        answer = sandbox.execute_batch_sync([("bash:run", {"command": "echo $x"})])
        assert "'stdout': '1\\n'" in str(answer["data"])
        assert sandbox.refresh_sessions_sync()["refreshed"] == {"bash": True}
        assert sandbox.reinitialize_sync("bash", {"cwd": "/tmp"})["config_applied"] == {"cwd": "/tmp"}
        assert "active" in str(sandbox.list_sessions_sync())
        assert sandbox.warmup_sync("bash")["status"] == "success"
        assert len(sandbox.get_tools_sync("bash")) == 1
        assert sandbox.get_status_sync()["status"] == "running"
        sandbox.create_session_sync("python")
        assert sandbox.destroy_session_sync("bash")["destroyed"] == ["bash"]
    assert sync_berth.sessions.list(worker_id=sandbox.worker_id) == []


async def test_sessions_stay_where_they_are_to(berth: AsyncBerth) -> None:
    async with Sandbox(keep_sessions=True) as sandbox:
        await sandbox.create_session("bash")
    async with berth.worker(sandbox.worker_id) as worker:
        assert [each.resource_type for each in await worker.list()] == ["bash"]


def test_every_call_has_a_twin() -> None:
    calls = [name for name, each in vars(Sandbox).items() if inspect.iscoroutinefunction(each) and name[0] != "_"]
    assert len(calls) == 12
    for name in calls:
        twin = inspect.signature(getattr(Sandbox, f"{name}_sync"))
        assert twin.parameters.keys() == inspect.signature(getattr(Sandbox, name)).parameters.keys()


async def test_the_token_of_a_profile_goes_with_its_address(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = grpc.aio.server()
    # It implements only one of the methods.
    service = Tokens()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]
    session_pb2_grpc.add_SessionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    (tmp_path / "berth").mkdir()
    profiles = {"work": {"address": f"127.0.0.1:{port}", "token": "secret"}}
    (tmp_path / "berth/profiles.json").write_text(json.dumps(profiles))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BERTH_PROFILE", "work")
    monkeypatch.delenv("BERTH_ADDRESS")
    try:
        sandbox = Sandbox(keep_sessions=True)
        assert sandbox.server_url == f"127.0.0.1:{port}"
        await sandbox.get_tools()
        await asyncio.to_thread(sandbox.get_tools_sync)
        await sandbox.close()
    finally:
        await server.stop(None)
    assert service.tokens == ["Bearer secret"] * 2


async def test_a_token_that_the_shell_pipes_in_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = grpc.aio.server()
    # It implements only one of the methods.
    service = Tokens()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]
    session_pb2_grpc.add_SessionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    reader, writer = os.pipe()
    os.write(writer, b"secret\n")
    os.close(writer)
    monkeypatch.setenv("BERTH_TOKEN_FILE", f"/dev/fd/{reader}")
    try:
        sandbox = Sandbox(f"127.0.0.1:{port}", keep_sessions=True)
        calls = [sandbox.get_tools(), asyncio.to_thread(sandbox.get_tools_sync)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await sandbox.close()
    finally:
        await server.stop(None)
        os.close(reader)
    assert answers == [[], []]
    assert service.tokens == ["Bearer secret"] * 2


class Tokens(session_pb2_grpc.SessionServiceServicer):
    """Records the tokens of the requests for tools."""

    def __init__(self) -> None:
        self.tokens: list[object] = []

    async def ListTools(  # noqa: N802
        self,
        request: session_pb2.ListToolsRequest,
        context: grpc.aio.ServicerContext[session_pb2.ListToolsRequest, session_pb2.ListToolsResponse],
    ) -> session_pb2.ListToolsResponse:
        self.tokens.append(dict(context.invocation_metadata() or ()).get("authorization"))
        return session_pb2.ListToolsResponse()
