# Generated from berth._async by generate_sync.py. Do not edit.
"""Workspaces: directories that outlive the sandboxes they are mounted in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from berth import _convert
from berth._sync.files import Source, pieces_of
from berth._sync.reading import Reading
from berth._sync.sandbox import Sandbox
from berth._sync.transport import Transport
from berth.errors import TraceNotFoundError
from berth.types import BrokenWorkspace, SandboxSpec, Unpacked, WorkspaceChange, WorkspaceInfo, WorkspaceList
from berth.v1 import workspace_pb2

_PAGE = 1000


@dataclass(frozen=True)
class WorkspaceSandbox:
    """A workspace and its sandbox."""

    workspace: WorkspaceInfo
    #: None if the engine does not answer; `unavailable_reason` says why.
    sandbox: Sandbox | None
    unavailable_reason: str
    #: Whether the sandbox already existed.
    reused: bool


class Workspaces:
    """The workspaces of a service. `berth.workspaces`.

    You choose a workspace's id: any text of 1 to 256 bytes. All methods may raise: InvalidArgumentError for a bad id,
    WorkspaceNotFoundError, WorkspaceBrokenError.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, workspace_id: str) -> WorkspaceInfo:
        """Creates a workspace and its directory; an existing one is returned as it is."""
        request = workspace_pb2.CreateWorkspaceRequest(workspace_id=workspace_id)
        answer = self._transport.retried(self._transport.stubs.workspaces.CreateWorkspace, request)
        return _convert.workspace(answer.workspace)

    def fork(self, source_id: str, workspace_id: str) -> WorkspaceInfo:
        """Creates the workspace `workspace_id` with the current content of `source_id`; sandboxes may use the source
        meanwhile.

        References are not copied. Raises WorkspaceExistsError, NoSpaceError, TenantQuotaError.
        """
        request = workspace_pb2.ForkWorkspaceRequest(
            source_workspace_id=source_id, workspace_id=workspace_id
        )
        answer = self._transport.retried(self._transport.stubs.workspaces.ForkWorkspace, request)
        return _convert.workspace(answer.workspace)

    def diff(self, base_id: str, workspace_id: str) -> Iterator[WorkspaceChange]:
        """How a workspace differs from another one, `base_id`, such as the source of its fork.

        Sorted by path. Compares every byte of the files, but not times, and reads both in full. The changes are
        complete only if the loop ends without an error. Raises WorkspaceInUseError if one is replaced meanwhile,
        UnsupportedError.
        """
        request = workspace_pb2.DiffWorkspaceRequest(base_workspace_id=base_id, workspace_id=workspace_id)
        stream = Reading(
            self._transport, lambda: self._transport.stream(self._transport.stubs.workspaces.DiffWorkspace, request)
        )
        try:
            while (answer := stream.read()) is not None:
                for change in answer.changes.changes:
                    yield _convert.workspace_change(change)
        finally:
            stream.cancel()

    def get(self, workspace_id: str, *, measure_size: bool = False) -> WorkspaceInfo:
        """The data of a workspace; `measure_size` reads its whole tree."""
        request = workspace_pb2.GetWorkspaceRequest(workspace_id=workspace_id, measure_size=measure_size)
        answer = self._transport.read(self._transport.stubs.workspaces.GetWorkspace, request)
        return _convert.workspace(answer.workspace)

    def list(self) -> WorkspaceList:
        """All workspaces, and separately those that are broken."""
        workspaces: list[WorkspaceInfo] = []
        broken: list[BrokenWorkspace] = []
        request = workspace_pb2.ListWorkspacesRequest(page_size=_PAGE)
        while True:
            page = self._transport.read(self._transport.stubs.workspaces.ListWorkspaces, request)
            workspaces += [_convert.workspace(each) for each in page.workspaces]
            broken += [BrokenWorkspace(each.workspace_id, each.path, each.message) for each in page.broken]
            if not page.next_page_token:
                return WorkspaceList(tuple(workspaces), tuple(broken))
            request.page_token = page.next_page_token

    def ensure_sandbox(
        self, workspace_id: str, spec: SandboxSpec | None = None
    ) -> WorkspaceSandbox:
        """Makes sure that a workspace has a running sandbox, in which it is the working directory.

        Creates the workspace if missing. An existing sandbox stays as it is; a new one is created from `spec`. Raises
        as `sandboxes.create`; NoSpaceError if the workspace exceeds its quota.
        """
        request = workspace_pb2.EnsureWorkspaceSandboxRequest(
            workspace_id=workspace_id, spec=None if spec is None else _convert.spec_message(spec)
        )
        answer = self._transport.retried(
            self._transport.stubs.workspaces.EnsureWorkspaceSandbox, request
        )
        sandbox = None
        if answer.HasField("sandbox"):
            sandbox = Sandbox(self._transport, _convert.sandbox(answer.sandbox))
        return WorkspaceSandbox(
            _convert.workspace(answer.workspace), sandbox, answer.sandbox_unavailable_reason, answer.reused
        )

    def stop_sandbox(self, workspace_id: str, *, grace: float | None = None) -> WorkspaceInfo:
        """Deletes a workspace's sandbox; the directory and the references stay. Idempotent."""
        request = workspace_pb2.StopWorkspaceSandboxRequest(
            workspace_id=workspace_id, grace=_convert.duration(grace)
        )
        answer = self._transport.retried(
            self._transport.stubs.workspaces.StopWorkspaceSandbox, request
        )
        return _convert.workspace(answer.workspace)

    def add_trace_ref(self, workspace_id: str, trace_id: str) -> WorkspaceInfo:
        """Records that a trace uses a workspace, created if missing. Removes the trace from any other. Idempotent."""
        request = workspace_pb2.AddTraceRefRequest(workspace_id=workspace_id, trace_id=trace_id)
        answer = self._transport.retried(self._transport.stubs.workspaces.AddTraceRef, request)
        return _convert.workspace(answer.workspace)

    def remove_trace_ref(self, workspace_id: str, trace_id: str) -> WorkspaceInfo:
        """Records that a trace no longer uses a workspace. Idempotent."""
        request = workspace_pb2.RemoveTraceRefRequest(workspace_id=workspace_id, trace_id=trace_id)
        answer = self._transport.retried(self._transport.stubs.workspaces.RemoveTraceRef, request)
        return _convert.workspace(answer.workspace)

    def lookup_trace(self, trace_id: str) -> WorkspaceInfo | None:
        """The workspace that a trace uses, if any."""
        request = workspace_pb2.LookupTraceRequest(trace_id=trace_id)
        try:
            answer = self._transport.read(self._transport.stubs.workspaces.LookupTrace, request)
        except TraceNotFoundError:
            return None
        return _convert.workspace(answer.workspace)

    def cleanup(
        self, workspace_id: str, *, force: bool = False, grace: float | None = None
    ) -> WorkspaceInfo | None:
        """Ends the use of a workspace: deletes every sandbox that mounts it, and clears its references.

        Raises WorkspaceInUseError while traces refer to it (`metadata["ref_count"]`), unless `force`, which also
        deletes the directory and the workspace and returns None.
        """
        request = workspace_pb2.CleanupWorkspaceRequest(
            workspace_id=workspace_id, force=force, grace=_convert.duration(grace)
        )
        answer = self._transport.retried(self._transport.stubs.workspaces.CleanupWorkspace, request)
        return _convert.workspace(answer.workspace) if answer.HasField("workspace") else None

    def export_archive(self, workspace_id: str) -> Iterator[bytes]:
        """A workspace as an uncompressed tar, in pieces. It is complete only once the last has arrived."""
        request = workspace_pb2.ExportWorkspaceRequest(workspace_id=workspace_id)
        stream = Reading(
            self._transport, lambda: self._transport.stream(self._transport.stubs.workspaces.ExportWorkspace, request)
        )
        try:
            while (answer := stream.read()) is not None:
                yield answer.chunk
        finally:
            stream.cancel()

    def import_archive(
        self, workspace_id: str, source: Source, *, replace: bool = False
    ) -> Unpacked:
        """Unpacks an uncompressed tar into a workspace, which is created if missing.

        `replace` replaces the whole content in one step. Raises ArchiveRejectedError, WorkspaceInUseError.
        """
        header = workspace_pb2.ImportWorkspaceHeader(workspace_id=workspace_id, replace=replace)

        def requests() -> Iterator[workspace_pb2.ImportWorkspaceRequest]:
            yield workspace_pb2.ImportWorkspaceRequest(header=header)
            for piece in pieces_of(source):
                yield workspace_pb2.ImportWorkspaceRequest(chunk=piece)

        answer = self._transport.upload(
            self._transport.stubs.workspaces.ImportWorkspace, requests()
        )
        return Unpacked(answer.entry_count, answer.size_bytes)
