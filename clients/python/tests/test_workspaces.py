"""The gateway's WorkspaceManager."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator

import pytest

from berth import AsyncBerth, SandboxSpec, errors
from berth.workspaces import LifecycleError, WorkspaceDockerError, WorkspaceManager, workspace_subdir_key


@pytest.fixture
async def manager() -> AsyncIterator[WorkspaceManager]:
    async with WorkspaceManager.from_env() as made:
        yield made


@pytest.fixture
async def name(manager: WorkspaceManager) -> AsyncIterator[str]:
    made = f"gateway/{uuid.uuid4().hex}"
    yield made
    await manager.cleanup_workspace(made, force=True)


async def test_a_workspace_from_its_making_to_its_end(manager: WorkspaceManager, name: str) -> None:
    with pytest.raises(LifecycleError, match=f"^Workspace 不存在: {name}$"):
        await manager.get_workspace_path(name)
    path = await manager.create_workspace(name)
    assert path == await manager.create_workspace(name) == await manager.get_workspace_path(name)
    assert path.startswith("/") and path.endswith(f"/{workspace_subdir_key(name)}")
    assert manager.get_workspace_container_id(name) is None
    assert await manager.ensure_session(name) == path
    sandbox_id = manager.get_workspace_container_id(name)
    assert sandbox_id
    await manager.add_trace_ref(name, f"{name}-b")
    await manager.add_trace_ref(name, f"{name}-a")
    assert {
        "workspace_id": name,
        "path": path,
        "ref_count": 2,
        "workspace_container_id": sandbox_id,
    } in await manager.list_workspaces()
    await manager.stop_workspace_sandbox(name)
    assert manager.get_workspace_container_id(name) is None
    with pytest.raises(LifecycleError, match="^Workspace 仍有 2 个 Trace 引用,拒绝清理$"):
        await manager.cleanup_workspace(name)
    await manager.cleanup_workspace(name, force=True)
    with pytest.raises(LifecycleError):
        await manager.get_workspace_path(name)


async def test_a_trace_uses_one_workspace(manager: WorkspaceManager, name: str) -> None:
    other = f"{name}/other"
    trace = f"t-{uuid.uuid4().hex}"
    assert manager.get_workspace_id_for_trace(trace) is None
    await manager.add_trace_ref(name, trace)
    assert manager.get_workspace_id_for_trace(trace) == name
    await manager.add_trace_ref(other, trace)
    assert manager.get_workspace_id_for_trace(trace) == other
    await manager.cleanup_workspace(name)
    # Another manager, as after a restart, also knows it, and removes only what it is given.
    async with WorkspaceManager() as later:
        await later.add_trace_ref(other, f"{trace}-2")
        await later.remove_trace_ref(other, f"{trace}-2")
        assert later.get_workspace_id_for_trace(trace) == other
        await later.remove_trace_ref(other, trace)
    assert manager.get_workspace_id_for_trace(trace) is None
    await manager.cleanup_workspace(other, force=True)


async def test_what_is_not_there_is_not_made(manager: WorkspaceManager, name: str, berth: AsyncBerth) -> None:
    await manager.remove_trace_ref(name, "t")
    await manager.cleanup_workspace(name)
    await manager.stop_workspace_sandbox(name)
    assert manager.get_workspace_container_id(name) is None
    with pytest.raises(errors.WorkspaceNotFoundError):
        await berth.workspaces.get(name)


async def test_without_an_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, berth: AsyncBerth
) -> None:
    # The engine refuses every sandbox with an unknown image.
    real = type(berth.workspaces).ensure_sandbox

    async def refused(self: object, workspace_id: str) -> object:
        return await real(berth.workspaces, workspace_id, SandboxSpec(image="no/such:image"))

    monkeypatch.setattr(type(berth.workspaces), "ensure_sandbox", refused)
    with caplog.at_level(logging.WARNING, "berth.workspaces"):
        path = await WorkspaceManager(berth).ensure_session(name)
    assert path == (await berth.workspaces.get(name)).path
    assert "Docker 未强制要求" in caplog.text
    monkeypatch.setenv("GATEWAY_WORKSPACE_DOCKER_REQUIRED", "true")
    with pytest.raises(WorkspaceDockerError):
        await WorkspaceManager.from_env(berth).ensure_session(name)
