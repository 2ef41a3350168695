"""Client of Berth, a self-hosted service that gives agents and services a safe place to run code.

`Berth` and, for asyncio, `AsyncBerth` are the client; `Agent` is a loop that the service supervises. The generated
messages and stubs are in `berth.v1`. Code written for AgentFlow, OpenManus or a gateway's WorkspaceManager finds the
names that it expects in `berth.agentflow`, `berth.openmanus` and `berth.workspaces`. `berth.Sandbox` is AgentFlow's;
what `Berth` creates has the type `SyncSandbox`.
"""

from berth._async.client import AsyncBerth
from berth._async.files import AsyncFiles
from berth._async.process import AsyncProcess
from berth._async.runs import AsyncRuns
from berth._async.sandbox import AsyncSandbox, AsyncSandboxes
from berth._async.sessions import AsyncSessions, AsyncWorker
from berth._async.subscription import AsyncSubscription
from berth._async.workspaces import AsyncWorkspaces, AsyncWorkspaceSandbox
from berth._sync.client import Berth
from berth._sync.files import Files
from berth._sync.process import Process
from berth._sync.runs import Runs
from berth._sync.sandbox import Sandbox as SyncSandbox
from berth._sync.sandbox import Sandboxes
from berth._sync.sessions import Sessions, Worker
from berth._sync.subscription import Subscription
from berth._sync.workspaces import Workspaces, WorkspaceSandbox
from berth.agent import Agent, AgentRun, AgentState, Message, Step, StepResult
from berth.agentflow import Sandbox
from berth.errors import BerthError, ConnectionLostError
from berth.types import (
    Attachment,
    Chunk,
    CommandError,
    CommandResult,
    ExitStatus,
    FileChange,
    FileInfo,
    Gap,
    Json,
    Mount,
    NextStep,
    ProcessInfo,
    Reinitialized,
    Report,
    ResourceType,
    ResourceUsage,
    RunEnd,
    RunEvent,
    RunInfo,
    RunMessage,
    RunStep,
    SandboxEvent,
    SandboxInfo,
    SandboxSpec,
    SessionInfo,
    SessionResource,
    SessionResult,
    SessionSecrets,
    Stats,
    Termination,
    ToolCall,
    ToolInfo,
    ToolMeta,
    ToolOutput,
    ToolResult,
    Tools,
    Unpacked,
    WorkspaceChange,
    WorkspaceInfo,
    WorkspaceList,
)

__all__ = [
    "Agent",
    "AgentRun",
    "AgentState",
    "AsyncBerth",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncRuns",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncSessions",
    "AsyncSubscription",
    "AsyncWorker",
    "AsyncWorkspaceSandbox",
    "AsyncWorkspaces",
    "Attachment",
    "Berth",
    "BerthError",
    "Chunk",
    "CommandError",
    "CommandResult",
    "ConnectionLostError",
    "ExitStatus",
    "FileChange",
    "FileInfo",
    "Files",
    "Gap",
    "Json",
    "Message",
    "Mount",
    "NextStep",
    "Process",
    "ProcessInfo",
    "Reinitialized",
    "Report",
    "ResourceType",
    "ResourceUsage",
    "RunEnd",
    "RunEvent",
    "RunInfo",
    "RunMessage",
    "RunStep",
    "Runs",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "SandboxSpec",
    "Sandboxes",
    "SessionInfo",
    "SessionResource",
    "SessionResult",
    "SessionSecrets",
    "Sessions",
    "Stats",
    "Step",
    "StepResult",
    "Subscription",
    "SyncSandbox",
    "Termination",
    "ToolCall",
    "ToolInfo",
    "ToolMeta",
    "ToolOutput",
    "ToolResult",
    "Tools",
    "Unpacked",
    "Worker",
    "WorkspaceChange",
    "WorkspaceInfo",
    "WorkspaceList",
    "WorkspaceSandbox",
    "Workspaces",
]
