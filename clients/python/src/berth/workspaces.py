"""A gateway's `WorkspaceManager`, on Berth's workspaces.

It replaces the gateway's WorkspaceManager with LifecycleError, WorkspaceDockerError and workspace_subdir_key: the same
methods, results and messages. Workspaces are on the service's machine, below its `--workspaces-root`, and records of
them in its store. So `workspaces_root` and `shared_root` are settings of the service, and a reference survives a
restart of either program.

To migrate: `berth.AsyncBerth().workspaces` has the same calls with typed results: create, get, list, ensure_sandbox,
stop_sandbox, add_trace_ref, remove_trace_ref, lookup_trace, cleanup.
"""

from __future__ import annotations

import hashlib
import logging
import os
from types import TracebackType

from berth._async.client import AsyncBerth
from berth._sync.transport import Transport
from berth._sync.workspaces import Workspaces
from berth.errors import BerthError, WorkspaceInUseError, WorkspaceNotFoundError
from berth.types import Json

__all__ = ["LifecycleError", "WorkspaceDockerError", "WorkspaceManager", "workspace_subdir_key"]

logger = logging.getLogger(__name__)


class LifecycleError(Exception):
    """A workspace does not exist or is still in use, or the service refused the call, whose error is the cause."""


class WorkspaceDockerError(LifecycleError):
    """A workspace's sandbox could not be started or stopped."""


def workspace_subdir_key(workspace_id: str) -> str:
    """The name of a workspace's directory."""
    return hashlib.sha256(workspace_id.encode("utf-8")).hexdigest()


class WorkspaceManager:
    """Workspaces, the traces that use them, and their sandboxes.

    `client`: the service; by default the one at BERTH_ADDRESS. `docker_required`: whether `ensure_session` raises
    WorkspaceDockerError if there can be no sandbox; by default it logs a warning, and the workspace has no sandbox.
    """

    def __init__(self, client: AsyncBerth | None = None, *, docker_required: bool = False) -> None:
        self._client = client
        self._own_client = client is None
        self._docker_required = docker_required
        self._sync: Transport | None = None

    @classmethod
    def from_env(cls, client: AsyncBerth | None = None) -> WorkspaceManager:
        """Uses GATEWAY_WORKSPACE_DOCKER_REQUIRED (default: false). The roots are settings of the service."""
        required = os.environ.get("GATEWAY_WORKSPACE_DOCKER_REQUIRED", "").strip().lower()
        return cls(client, docker_required=required in {"1", "true", "yes", "on"})

    async def create_workspace(self, workspace_id: str) -> str:
        """Creates a workspace and returns the absolute path of its directory. Idempotent."""
        return (await self._berth().workspaces.create(workspace_id)).path

    async def get_workspace_path(self, workspace_id: str) -> str:
        """The absolute path of a workspace's directory. Raises LifecycleError if there is none."""
        try:
            return (await self._berth().workspaces.get(workspace_id)).path
        except WorkspaceNotFoundError as error:
            raise LifecycleError(f"Workspace 不存在: {workspace_id}") from error

    async def ensure_session(self, workspace_id: str) -> str:
        """Makes sure that a workspace, the shared directory and the workspace's sandbox exist.

        Returns the absolute path of the directory. Raises WorkspaceDockerError with `docker_required`.
        """
        workspaces = self._berth().workspaces
        # Create the workspace first, so that it exists even if its sandbox cannot.
        path = (await workspaces.create(workspace_id)).path
        try:
            ensured = await workspaces.ensure_sandbox(workspace_id)
            reason, cause = ensured.unavailable_reason, None
        except BerthError as error:
            reason, cause = error.message, error
        if reason:
            if self._docker_required:
                raise WorkspaceDockerError(reason) from cause
            logger.warning("Docker 未强制要求,继续无沙箱容器:%s", reason)
        return path

    async def add_trace_ref(self, workspace_id: str, trace_id: str) -> None:
        """Records that a trace uses a workspace, created if missing. Removes the trace from any other."""
        await self._berth().workspaces.add_trace_ref(workspace_id, trace_id)

    async def remove_trace_ref(self, workspace_id: str, trace_id: str) -> None:
        """Records that a trace no longer uses a workspace. Does not create one."""
        try:
            await self._berth().workspaces.remove_trace_ref(workspace_id, trace_id)
        except WorkspaceNotFoundError:
            return

    async def cleanup_workspace(self, workspace_id: str, *, force: bool = False) -> None:
        """Ends the use of a workspace. With `force`, also deletes its directory.

        While traces refer to it, raises LifecycleError with their number, unless `force`.
        """
        try:
            await self._berth().workspaces.cleanup(workspace_id, force=force)
        except WorkspaceNotFoundError:
            return
        except WorkspaceInUseError as error:
            count = error.metadata.get("ref_count", "?")
            raise LifecycleError(f"Workspace 仍有 {count} 个 Trace 引用,拒绝清理") from error

    async def list_workspaces(self) -> list[dict[str, Json]]:
        """Each: {"workspace_id", "path", "ref_count", "workspace_container_id"}; the last is the sandbox's id or None."""
        return [
            {
                "workspace_id": workspace.workspace_id,
                "path": workspace.path,
                "ref_count": workspace.ref_count,
                "workspace_container_id": workspace.sandbox_id or None,
            }
            for workspace in (await self._berth().workspaces.list()).workspaces
        ]

    def get_workspace_id_for_trace(self, trace_id: str) -> str | None:
        """The workspace that a trace uses. Asks the service and waits for the answer."""
        found = self._waiting().lookup_trace(trace_id)
        return found.workspace_id if found else None

    def get_workspace_container_id(self, workspace_id: str) -> str | None:
        """The id of a workspace's sandbox. Asks the service and waits for the answer."""
        try:
            return self._waiting().get(workspace_id).sandbox_id or None
        except WorkspaceNotFoundError:
            return None

    async def stop_workspace_sandbox(self, workspace_id: str) -> None:
        """Deletes a workspace's sandbox. The directory and the references stay. Raises WorkspaceDockerError."""
        try:
            await self._berth().workspaces.stop_sandbox(workspace_id)
        except WorkspaceNotFoundError:
            return
        except BerthError as error:
            raise WorkspaceDockerError(error.message) from error

    async def close(self) -> None:
        """Closes the connections. Workspaces and their sandboxes stay."""
        sync, self._sync = self._sync, None
        if sync is not None:
            sync.close()
        if self._own_client and self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def __aenter__(self) -> WorkspaceManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _berth(self) -> AsyncBerth:
        if self._client is None:
            self._client = AsyncBerth()
        return self._client

    def _waiting(self) -> Workspaces:
        if self._sync is None:
            transport = self._berth().transport
            self._sync = Transport(transport.endpoint, transport.retry_for)
        return Workspaces(self._sync)
