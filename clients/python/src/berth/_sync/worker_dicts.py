# Generated from berth._async by generate_sync.py. Do not edit.
"""The calls of AgentFlow's sandbox, which return plain dicts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Union

from berth._sync.sandbox import Sandboxes
from berth._sync.sessions import Sessions
from berth._sync.transport import Transport
from berth.errors import BerthError
from berth.types import (
    BatchResult,
    Json,
    Reinitialized,
    SessionInfo,
    SessionResource,
    SessionResult,
    ToolCall,
    ToolResult,
)

Dict = dict[str, Json]
Resources = Union[str, Sequence[str], Mapping[str, Union[Mapping[str, Json], None]]]
Action = Union[Mapping[str, Json], Sequence[Json]]

#: AgentFlow's names for the parts of a batch.
_NAME_KEYS = ("action", "tool")


class WorkerDicts:
    """A worker's sessions and tools in AgentFlow's form. See `berth.agentflow`."""

    def __init__(self, transport: Transport, worker_id: str, timeout: float | None) -> None:
        self._transport = transport
        self._sessions = Sessions(transport)
        self._worker = self._sessions.worker(worker_id)
        self._timeout = timeout

    def create_session(self, resources: Resources, config: Mapping[str, Json] | None) -> Dict:
        wanted = _resources(resources, config)
        results = self._worker.create(*wanted) if len(wanted) != 1 else [self._one(wanted[0])]
        if isinstance(resources, str):
            return _created(results[0])
        failed = [result for result in results if result.error is not None]
        return {
            "status": "success" if not failed else "partial" if len(failed) < len(results) else "error",
            "sessions": {result.resource_type: _created(result) for result in results},
        }

    def execute(
        self, action: str, params: Mapping[str, Json] | None, timeout: float | None, trace_id: str
    ) -> Dict:
        result = self._worker.execute(
            action, params, timeout=self._timeout if timeout is None else timeout, trace_id=trace_id
        )
        return _tool_result(result)

    def execute_batch(
        self,
        actions: Sequence[Action],
        parallel: bool,
        stop_on_error: bool,
        timeout: float | None,
        trace_id: str,
    ) -> Dict:
        limit = self._timeout if timeout is None else timeout
        calls = [_call(action, limit) for action in actions]
        outcomes = self._worker.execute_batch(
            calls, parallel=parallel, stop_on_error=stop_on_error, trace_id=trace_id
        )
        results = [_batch_result(call, outcome) for call, outcome in zip(calls, outcomes)]
        done = sum(isinstance(outcome, ToolResult) and outcome.ok for outcome in outcomes)
        ok = done == len(outcomes)
        return {
            "code": 0 if ok else 4001,
            "message": "success" if ok else f"{len(outcomes) - done} of {len(outcomes)} calls did not succeed",
            "data": {
                "results": list(results),
                "total": len(outcomes),
                "executed": sum(outcome is not None for outcome in outcomes),
                "success_count": done,
            },
        }

    def refresh_sessions(self, resource_type: str | None) -> Dict:
        results = self._worker.refresh(*([resource_type] if resource_type else []))
        return {
            "status": "success" if all(result.status == "REFRESHED" for result in results) else "not_found",
            "refreshed": {result.resource_type: result.status == "REFRESHED" for result in results},
        }

    def reinitialize(self, resource_type: str, config: Mapping[str, Json] | None) -> Dict:
        made = self._worker.reinitialize(resource_type, config)
        return _reinitialized(made, config)

    def list_sessions(self) -> Dict:
        return {"sessions": [_session(session) for session in reversed(self._worker.list())]}

    def destroy_session(self, resources: str | Sequence[str] | None) -> Dict:
        types = [resources] if isinstance(resources, str) else list(resources or ())
        results = self._worker.destroy(*types)
        return {
            "status": "success" if all(result.status == "DESTROYED" for result in results) else "not_found",
            "destroyed": [result.resource_type for result in results if result.status == "DESTROYED"],
        }

    def get_tools(self, resource_type: str) -> list[Dict]:
        return [
            {
                "name": tool.short_name,
                "full_name": tool.name,
                "resource_type": tool.resource_type,
                "description": tool.description,
                "parameters": tool.params_schema,
            }
            for tool in (self._sessions.tools(resource_type)).tools
        ]

    def warmup(self, resources: str | Sequence[str] | None) -> Dict:
        offered = [each.name for each in (self._sessions.tools()).resource_types]
        wanted = offered if resources is None else [resources] if isinstance(resources, str) else list(resources)
        known: Dict = {name: name in offered for name in wanted}
        return {"status": "success" if all(known.values()) else "error", "resources": known}

    def get_status(self) -> Dict:
        stats = Sandboxes(self._transport).stats()
        return {
            "status": "shutting_down" if stats.is_shutting_down else "running",
            "engine": stats.engine,
            "total_sandboxes": stats.total_sandboxes,
            "max_sandboxes": stats.max_sandboxes,
            "active_operations": stats.active_operations,
        }

    def close(self, destroy: bool) -> None:
        try:
            if destroy:
                self._worker.destroy(grace=0)
        finally:
            self._transport.close()

    def _one(self, resource: SessionResource) -> SessionResult:
        """Creates one session. A failure is reported in the result, as when several are created."""
        try:
            return (self._worker.create(resource))[0]
        except BerthError as error:
            return SessionResult(resource.resource_type, "FAILED", None, error)


def _resources(resources: Resources, config: Mapping[str, Json] | None) -> list[SessionResource]:
    if isinstance(resources, str):
        return [SessionResource(resources, config)]
    if isinstance(resources, Mapping):
        if config is not None:
            raise ValueError("config goes with one type; of several, give a dict from type to config")
        return [SessionResource(name, each or None) for name, each in resources.items()]
    return [SessionResource(name, config) for name in resources]


def _created(result: SessionResult) -> Dict:
    if result.error is not None or result.session is None:
        return {"status": "error", "resource_type": result.resource_type, "error": _error(result.error)}
    session = result.session
    return {
        "status": "exists" if result.status == "EXISTS" else "success",
        "resource_type": session.resource_type,
        "session_id": session.session_id,
        "session_name": session.name,
        "config": session.config,
    }


def _session(session: SessionInfo) -> Dict:
    return {
        "resource_type": session.resource_type,
        "session_id": session.session_id,
        "status": session.status.lower(),
        "session_name": session.name,
        "worker_id": session.worker_id,
        "config": session.config,
        "created_at": session.create_time.isoformat() if session.create_time else None,
        "expires_at": session.expire_time.isoformat() if session.expire_time else None,
    }


def _reinitialized(made: Reinitialized, config: Mapping[str, Json] | None) -> Dict:
    if made.error is not None:
        return {
            "status": "error",
            "resource_type": made.resource_type,
            "old_session_id": made.old_session_id or None,
            "new_session_id": None,
            "error": _error(made.error),
        }
    return {
        "status": "success",
        "resource_type": made.resource_type,
        "old_session_id": made.old_session_id or None,
        "new_session_id": made.new_session_id,
        # The requested settings that are in effect.
        "config_applied": {
            key: each for key, each in made.config_applied.items() if config is None or key in config
        },
    }


def _tool_result(result: ToolResult) -> Dict:
    answer: Dict = {
        "code": result.code,
        "message": result.message,
        "data": result.data,
        "meta": {
            "tool": result.meta.tool,
            "full_name": result.meta.full_name,
            "resource_type": result.meta.resource_type,
            "session_id": result.meta.session_id,
            "temporary_session": result.meta.temporary_session,
            "trace_id": result.meta.trace_id,
            "execution_time_ms": result.meta.execution_time_ms,
        },
    }
    if result.attachments:
        answer["attachments"] = [
            {
                "name": each.name,
                "media_type": each.media_type,
                "content": base64.b64encode(each.content).decode(),
            }
            for each in result.attachments
        ]
    return answer


def _batch_result(call: ToolCall, outcome: BatchResult) -> Json:
    if outcome is None:
        return {"code": 4001, "message": "skipped", "data": None, "meta": {"full_name": call.tool, "skipped": True}}
    if isinstance(outcome, BerthError):
        return {
            "code": 4001,
            "message": outcome.message,
            "data": None,
            "meta": {"full_name": call.tool, "reason": outcome.reason},
        }
    return _tool_result(outcome)


def _call(action: Action, timeout: float | None) -> ToolCall:
    """A call in AgentFlow's form: {"action": …, "params": …}, or (action, params)."""
    if isinstance(action, Mapping):
        name = next((action[key] for key in _NAME_KEYS if key in action), None)
        params = action.get("params") or action.get("parameters")
    else:
        name, params = (*action, None, None)[:2]
    if not isinstance(name, str) or not (params is None or isinstance(params, dict)):
        raise TypeError(f'a call of a batch is {{"action": "bash:run", "params": {{…}}}}, not {action!r}')
    return ToolCall(name, params, timeout)


def _error(error: BerthError | None) -> str:
    return error.message if error else "the session could not be made"
