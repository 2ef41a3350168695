"""Secrets of the service, by name. The service runs with `--secrets`: "key" is "hunter22"."""

from __future__ import annotations

import pytest

from berth import AsyncBerth, AsyncSandbox, Berth, SessionResource, SessionSecrets, ToolResult, errors


def _data(result: ToolResult, name: str) -> object:
    assert isinstance(result.data, dict)
    return result.data[name]


async def test_commands(sandbox: AsyncSandbox) -> None:
    plain = await sandbox.run('printf "%s" "$S"', secret_env={"S": "key"})
    assert plain.stdout == "hunter22"
    redacted = await sandbox.run('printf "%s, " "$S"', secret_env={"S": "key"}, redact_secrets=True)
    assert redacted.stdout == "[redacted], "
    with pytest.raises(errors.SecretNotFoundError):
        await sandbox.run("true", secret_env={"S": "other"})


async def test_sandboxes(berth: AsyncBerth) -> None:
    async with berth.sandboxes.create(secret_env={"S": "key"}) as sandbox:
        assert dict(sandbox.info.spec.secret_env) == {"S": "key"}
        assert (await sandbox.run('printf "%s" "$S"')).stdout == "hunter22"


async def test_sessions(berth: AsyncBerth) -> None:
    async with berth.worker() as worker:
        secrets = SessionSecrets({"S": "key"}, redact=True)
        (made,) = await worker.create(SessionResource("python", secrets=secrets))
        assert made.session is not None
        assert made.session.secrets == secrets
        code = {"code": "import os; os.environ.get('S')"}
        assert _data(await worker.execute("python:run", code), "result") == "'[redacted]'"
        await worker.reinitialize("python", secrets=SessionSecrets({"S": "key"}))
        assert _data(await worker.execute("python:run", code), "result") == "'hunter22'"
        await worker.reinitialize("python", secrets=SessionSecrets({}))
        assert _data(await worker.execute("python:run", code), "result") is None
        with pytest.raises(errors.SecretNotFoundError):
            await worker.create(SessionResource("bash", secrets=SessionSecrets({"S": "other"})))


def test_the_client_without_asyncio(sync_berth: Berth) -> None:
    with sync_berth.worker() as worker:
        worker.create(SessionResource("bash", secrets=SessionSecrets({"S": "key"}, redact=True)))
        assert _data(worker.execute("bash:run", {"command": "echo $S"}), "stdout") == "[redacted]\n"
