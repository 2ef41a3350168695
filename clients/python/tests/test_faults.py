"""A service that is down, a broken connection, certificates that do not match, and a newer service."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import signal
import sys
import time
import uuid
import weakref
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from berth import AsyncBerth, AsyncProcess, AsyncSandbox, Berth, ConnectionLostError, SandboxEvent, _convert, errors
from berth._retry import Pauses
from berth.v1 import error_pb2, process_pb2, process_pb2_grpc, sandbox_pb2, sandbox_pb2_grpc
from conftest import Link

#: A port on which nothing listens: the discard service's.
NOWHERE = "127.0.0.1:9"


async def test_a_service_that_is_down() -> None:
    started = time.monotonic()
    async with AsyncBerth(NOWHERE, retry_for=0) as berth:
        with pytest.raises(errors.UnavailableError, match=r"Cannot reach Berth at 127.0.0.1:9\. Is it running") as raised:
            await berth.sandboxes.stats()
        assert (raised.value.code, raised.value.reason) == ("UNAVAILABLE", "")
        with pytest.raises(errors.UnavailableError, match="berth serve"):
            await berth.sandboxes.create()
    assert time.monotonic() - started < 60
    with Berth("unix:/no/such/socket", retry_for=0.2) as other:
        with pytest.raises(errors.UnavailableError, match="unix:/no/such/socket"):
            other.worker().create("bash")


@pytest.mark.parametrize("address", ["host", "http://", "ftp://host:1", "host:99999", "host:1/path", "a b:c"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address: write"):
        AsyncBerth(address)


def test_addresses_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(address: str | None) -> str:
        return AsyncBerth(address).transport.endpoint.target

    assert target("[::1]:70") == "[::1]:70" and target(":70") == "127.0.0.1:70"
    assert target("http://host") == "host:80" and target("https://host") == "host:443"
    assert target("unix:///run/b.sock") == "unix:/run/b.sock" and target("unix:b.sock") == "unix:b.sock"
    monkeypatch.setenv("BERTH_ADDRESS", "here:1")
    monkeypatch.setenv("BERTH_TOKEN", "secret")
    assert target(None) == "here:1" and target("there:2") == "there:2"
    assert AsyncBerth().transport.endpoint.metadata == (("authorization", "Bearer secret"),)
    assert AsyncBerth(token="").transport.endpoint.metadata == ()
    monkeypatch.delenv("BERTH_ADDRESS")
    assert target(None) == "127.0.0.1:7070"
    with pytest.raises(ValueError, match="ca= is for TLS"):
        AsyncBerth("http://host", ca=b"")


@pytest.mark.parametrize(("address", "tls"), [("https://host", False), ("http://host", True)])
def test_an_address_and_tls_that_contradict_each_other_are_refused(address: str, tls: bool) -> None:
    refused: list[str] = []
    for client in (AsyncBerth, Berth):
        with contextlib.suppress(ValueError):
            client(address, tls=tls, token="secret")
            continue
        refused.append(client.__name__)
    assert refused == ["AsyncBerth", "Berth"]


async def test_certificates() -> None:
    address, ca = os.environ["BERTH_TEST_TLS_ADDRESS"], os.environ["BERTH_TEST_CA"]
    async with AsyncBerth(address, ca=ca) as berth:
        assert (await berth.sandboxes.stats()).max_sandboxes > 0
    with Berth(f"https://{address}", ca=Path(ca).read_bytes()) as sync_berth:
        assert sync_berth.sandboxes.stats().max_sandboxes > 0
    for wrong in (os.environ["BERTH_TEST_OTHER_CA"], None):
        async with AsyncBerth(address, ca=wrong, tls=True, retry_for=0) as berth:
            with pytest.raises(errors.UnavailableError) as raised:
                await berth.sandboxes.stats()
            assert "is not signed by a CA that this client trusts (ca=; by default those of gRPC)" in str(raised.value)
    async with AsyncBerth(address, retry_for=0) as berth:
        with pytest.raises(errors.UnavailableError, match="Cannot reach Berth at"):
            await berth.sandboxes.stats()
    # The oldest grpcio says nothing about TLS; the newest also mentions a certificate.
    async with AsyncBerth(os.environ["BERTH_ADDRESS"], ca=ca, retry_for=0) as berth:
        with pytest.raises(errors.UnavailableError, match="does not speak TLS there|tcp handshaker shutdown"):
            await berth.sandboxes.stats()
    with pytest.raises(ValueError, match="holds no certificate in PEM"):
        AsyncBerth(address, ca=b"no PEM")
    with pytest.raises(ValueError, match="hostname' holds no certificate"):
        AsyncBerth(address, ca="/etc/hostname")


async def test_a_certificate_is_presented() -> None:
    address, cert = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    other = Path(os.environ["BERTH_TEST_OTHER_CA"])
    key, other_key = cert.with_suffix(".key"), other.with_suffix(".key")
    # The certificate is accepted, and then the missing token is refused.
    async with AsyncBerth(address, ca=cert, client_cert=cert, client_key=key) as berth:
        with pytest.raises(errors.UnauthenticatedError):
            await berth.sandboxes.stats()
    pair = cert.read_bytes(), key.read_bytes()
    with Berth(f"https://{address}", ca=cert, client_cert=pair[0], client_key=pair[1]) as sync_berth:
        with pytest.raises(errors.UnauthenticatedError):
            sync_berth.sandboxes.stats()
    async with AsyncBerth(address, ca=cert, retry_for=0) as berth:
        with pytest.raises(errors.UnavailableError, match="does it trust the certificate given as client_cert="):
            await berth.sandboxes.stats()
    async with AsyncBerth(address, ca=cert, client_cert=other, client_key=other_key, retry_for=0) as berth:
        with pytest.raises(errors.UnavailableError, match="does it trust the certificate given as client_cert="):
            await berth.sandboxes.stats()
    for own, secret, problem in (
        (cert, None, "client_cert= and client_key= belong together"),
        (None, key, "client_cert= and client_key= belong together"),
        (key, key, "own.key' holds no certificate in PEM"),
        (cert, b"none", "client_key=... holds no private key in PEM"),
        (cert, cert, "own.pem' holds no private key in PEM"),
        (cert, other_key, "client_key= holds another key than that of client_cert="),
        (cert, b"-----BEGIN ENCRYPTED PRIVATE KEY-----", "client_key=... is encrypted"),
    ):
        with pytest.raises(ValueError, match=problem):
            AsyncBerth(address, client_cert=own, client_key=secret)
    with pytest.raises(ValueError, match="client_cert= is for TLS"):
        AsyncBerth("http://host", client_cert=cert, client_key=key)
    with pytest.raises(FileNotFoundError, match="/no"):
        AsyncBerth(address, client_cert="/no", client_key=key)


async def test_a_certificate_may_be_renewed(tmp_path: Path) -> None:
    """Renewing is replacing two files, one after the other."""
    address, good = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    other = Path(os.environ["BERTH_TEST_OTHER_CA"])
    cert, key = tmp_path / "my.pem", tmp_path / "my.key"

    def put(source: Path) -> None:
        cert.write_bytes(source.read_bytes())
        key.write_bytes(source.with_suffix(".key").read_bytes())

    put(other)
    own: dict[str, Any] = {"client_cert": cert, "client_key": key}
    async with AsyncBerth(address, ca=good, **own, retry_for=0) as berth:
        with Berth(address, ca=good, **own, retry_for=0) as sync_berth:
            with pytest.raises(errors.UnavailableError):
                await berth.sandboxes.stats()
            with pytest.raises(errors.UnavailableError):
                sync_berth.sandboxes.stats()
            cert.write_bytes(good.read_bytes())
            with pytest.raises(errors.UnavailableError):
                await berth.sandboxes.stats()
            put(good)
            # The certificate is accepted, and then the missing token is refused.
            with pytest.raises(errors.UnauthenticatedError):
                await berth.sandboxes.stats()
            with pytest.raises(errors.UnauthenticatedError):
                sync_berth.sandboxes.stats()


async def test_a_certificate_is_renewed_between_two_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, good = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    pair = tmp_path / "pair.pem"

    def put(source: Path) -> None:
        pair.write_bytes(source.read_bytes() + source.with_suffix(".key").read_bytes())

    pause_of = Pauses.next

    def renewing(pauses: Pauses, error: errors.BerthError) -> float | None:
        put(good)
        return pause_of(pauses, error)

    monkeypatch.setattr(Pauses, "next", renewing)
    own: dict[str, Any] = {"ca": good, "client_cert": pair, "client_key": pair, "retry_for": 10}
    # The certificate is accepted, and then the missing token is refused.
    put(Path(os.environ["BERTH_TEST_OTHER_CA"]))
    async with AsyncBerth(address, **own) as berth:
        with pytest.raises(errors.BerthError) as raised:
            await berth.sandboxes.stats()
        assert raised.value.code == "UNAUTHENTICATED"
    put(Path(os.environ["BERTH_TEST_OTHER_CA"]))
    with Berth(address, **own) as sync_berth:
        with pytest.raises(errors.BerthError) as raised:
            sync_berth.sandboxes.stats()
        assert raised.value.code == "UNAUTHENTICATED"


def _sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return count


async def test_renewals_leave_no_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth._endpoint._IDLE_MS", 1000)
    address, good = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    pair = tmp_path / "pair.pem"

    def renew(text: bytes) -> None:
        new = pair.with_suffix(".new")
        new.write_bytes(good.read_bytes() + good.with_suffix(".key").read_bytes() + text)
        new.replace(pair)

    renew(b"")
    own: dict[str, Any] = {"ca": good, "client_cert": pair, "client_key": pair}
    async with AsyncBerth(address, **own) as berth:
        with Berth(address, **own) as sync_berth:

            async def call() -> None:
                # The certificate is accepted, and then the missing token is refused.
                with pytest.raises(errors.UnauthenticatedError):
                    await berth.sandboxes.stats()
                with pytest.raises(errors.UnauthenticatedError):
                    sync_berth.sandboxes.stats()

            await call()
            # gRPC has some for itself.
            few = _sockets() + 20
            # The same content again.
            for _ in range(20):
                renew(b"")
                await call()
            assert _sockets() < few
            for number in range(50):
                renew(b"\n# %d\n" % number)
                await call()
            async with asyncio.timeout(120):
                while _sockets() >= few:
                    await asyncio.sleep(0.05)
            await call()


async def test_authorities_may_be_half_written(tmp_path: Path) -> None:
    address, good = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    content = good.read_bytes()
    ca = tmp_path / "ca.pem"
    ca.write_bytes("# Größe\n".encode() + content)
    own: dict[str, Any] = {"client_cert": good, "client_key": good.with_suffix(".key")}
    async with AsyncBerth(address, ca=ca, **own, retry_for=0) as berth:
        for half in (content, content[:-40], content + content[:100], b"", content):
            ca.write_bytes(half)
            with pytest.raises(errors.BerthError) as caught:
                await berth.sandboxes.stats()
            assert caught.value.code == "UNAUTHENTICATED"
    ca.write_bytes(content[:-40])
    with pytest.raises(ValueError, match=r"^ca=.* cannot be used"):
        AsyncBerth(address, ca=ca, **own)


class Tokens:
    """The tokens file of the guarded service, and its only token in a file for clients."""

    def __init__(self, place: Path) -> None:
        self.file = place / "token"
        self._current = ""
        self._add()
        self.file.write_text(self._current)

    def _add(self) -> str:
        """Adds another token; the service then knows both. Returns the previous one."""
        before, self._current = self._current, f"berth_{uuid.uuid4().hex[:10]}_{'0' * 43}"
        self._write(*filter(None, (before, self._current)))
        return before

    @staticmethod
    def _write(*tokens: str) -> None:
        file = Path(os.environ["BERTH_TEST_TOKENS"])
        entries = [
            {"id": text.split("_")[1], "tenant": "acme", "scope": "user", "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for text in tokens
        ]
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"tenants": {"acme": {}}, "tokens": entries}))
        new.chmod(0o600)
        new.rename(file)

    def settings(self, **token: Any) -> dict[str, Any]:
        """Those of a client of the service, by default with the token in the file."""
        cert = Path(os.environ["BERTH_TEST_CA"])
        address = os.environ["BERTH_TEST_GUARDED_ADDRESS"]
        own = {"client_cert": cert, "client_key": cert.with_suffix(".key")}
        return {"address": address, "ca": cert, **own, **(token or {"token_file": self.file})}

    async def rotate(self, replace: Callable[[str], object]) -> None:
        """Replaces the token. Returns when the service refuses the previous one."""
        before = self._add()
        await self.settled(self._current, accepted=True)
        replace(self._current)
        self._write(self._current)
        await self.settled(before, accepted=False)

    async def settled(self, token: str = "", *, accepted: bool = True) -> None:
        """Waits until the service accepts a token, or no longer."""
        for _ in range(200):
            try:
                async with AsyncBerth(**self.settings(token=token or self._current)) as berth:
                    await berth.sandboxes.stats()
                if accepted:
                    return
            except errors.UnauthenticatedError:
                if not accepted:
                    return
            await asyncio.sleep(0.1)
        raise AssertionError("the service did not apply the tokens file")


async def test_calls_go_on_when_a_certificate_is_renewed(tmp_path: Path) -> None:
    """A renewal moves later calls to another connection."""
    tokens = Tokens(tmp_path)
    await tokens.settled()
    address, good = os.environ["BERTH_TEST_GUARDED_ADDRESS"], Path(os.environ["BERTH_TEST_CA"])
    pair = tmp_path / "pair.pem"

    def renew() -> None:
        new = pair.with_suffix(".new")
        new.write_bytes(good.read_bytes() + good.with_suffix(".key").read_bytes())
        new.replace(pair)

    renew()
    own: dict[str, Any] = {"ca": good, "client_cert": pair, "client_key": pair, "token_file": tokens.file}
    async with AsyncBerth(address, **own) as berth, berth.sandboxes.create() as sandbox:
        with Berth(address, **own) as sync_berth:
            same = sync_berth.sandboxes.get(sandbox.sandbox_id)
            command = "read line; echo $line"
            async with sandbox.exec(command, keep_stdin_open=True) as process:
                with same.exec(command, keep_stdin_open=True) as sync_process:
                    for _ in range(2):
                        renew()
                        gc.collect()
                        await berth.sandboxes.stats()
                        sync_berth.sandboxes.stats()
                    await process.write("one\n")
                    sync_process.write("two\n")
                    assert (await process.result()).stdout == "one\n"
                    assert sync_process.result().stdout == "two\n"
        # A client that is closed after a renewal still ends what it runs.
        async with AsyncBerth(address, **own) as other:
            left = await (await other.sandboxes.get(sandbox.sandbox_id)).exec("sleep 1000").start()
            renew()
        with Berth(address, **own) as sync_other:
            sync_left = sync_other.sandboxes.get(sandbox.sandbox_id).exec("sleep 1000").start()
            renew()
        for process_id in (left.process_id, sync_left.process_id):
            assert (await asyncio.wait_for(sandbox.attach(process_id).wait(), 20)).signal == signal.SIGKILL


async def test_a_token_file_may_be_replaced(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    await tokens.settled()

    def rename(token: str) -> None:
        (tmp_path / "new").write_text(f"{token}\n")
        (tmp_path / "new").rename(tokens.file)

    def link(token: str) -> None:
        # As Kubernetes does it: a link to a file below a link to a directory.
        (tmp_path / "1").mkdir()
        (tmp_path / "1/token").write_text(token)
        (tmp_path / "data").symlink_to("1")
        tokens.file.unlink()
        tokens.file.symlink_to("data/token")

    def swap(token: str) -> None:
        (tmp_path / "2").mkdir()
        (tmp_path / "2/token").write_text(token)
        (tmp_path / "data.new").symlink_to("2")
        (tmp_path / "data.new").rename(tmp_path / "data")

    def pipe() -> None:
        tokens.file.rmdir()
        os.mkfifo(tokens.file)

    async with AsyncBerth(**tokens.settings()) as berth, AsyncExitStack() as stack:
        sync_berth = stack.enter_context(Berth(**tokens.settings()))
        for replace in (tokens.file.write_text, rename, link, swap):
            await tokens.rotate(replace)
            assert (await berth.sandboxes.stats()).max_sandboxes > 0
            assert sync_berth.sandboxes.stats().max_sandboxes > 0
        for spoil in (
            lambda: tokens.file.write_text(""),
            lambda: tokens.file.write_text("no token"),
            tokens.file.unlink,
            tokens.file.mkdir,
            pipe,
        ):
            spoil()
            assert (await berth.sandboxes.stats()).max_sandboxes > 0
            assert sync_berth.sandboxes.stats().max_sandboxes > 0
        tokens.file.unlink()
        await tokens.rotate(tokens.file.write_text)
        assert (await berth.sandboxes.stats()).max_sandboxes > 0


async def test_streams_of_a_revoked_token_go_on_with_its_replacement(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    await tokens.settled()
    async with AsyncBerth(**tokens.settings()) as berth, berth.sandboxes.create() as sandbox:
        events = berth.sandboxes.events(sandbox_id=sandbox.sandbox_id)
        assert await events.read()
        async with sandbox.exec("echo before; read line; echo $line", keep_stdin_open=True) as command:
            chunk = await command.read()
            assert chunk and chunk.text == "before\n"
            after = asyncio.create_task(command.read())
            await tokens.rotate(tokens.file.write_text)
            await command.write("after\n")
            chunk = await after
            assert chunk and chunk.text == "after\n"
        await sandbox.delete()
        types: list[str] = []
        while len(types) < 20 and types[-1:] != ["TERMINATED"]:
            event = await events.read()
            assert event
            types.append(event.type)
        assert types[-1] == "TERMINATED"
        await events.end()
        # Without a replacement, the refusal is reported at once.
        await tokens.rotate(lambda _: None)
        with pytest.raises(errors.UnauthenticatedError) as raised:
            await berth.sandboxes.stats()
        assert not raised.value.token_replaced
        # So that the sandbox can be deleted.
        await tokens.rotate(tokens.file.write_text)


async def test_output_goes_on_where_the_connection_broke(link: Link) -> None:
    link.lengths = [100_000, 150_000, 20, 200_000]
    async with AsyncBerth(link.address, retry_for=20) as berth:
        # The first connection is used up before the command.
        async with berth.sandboxes.create() as sandbox:
            # With a request id it starts once, even if the response that it has started is lost.
            process = sandbox.exec("seq 100000; seq 100000 >&2", reconnect=20, request_id=uuid.uuid4().hex)
            chunks = [chunk async for chunk in process]
            for stream in ("stdout", "stderr"):
                data = b"".join(chunk.data for chunk in chunks if chunk.stream == stream)
                assert data == b"".join(b"%d\n" % number for number in range(1, 100_001))
            assert not any(chunk.lost for chunk in chunks)
    assert link.cuts == 4


async def test_output_goes_on_without_asyncio(link: Link) -> None:
    link.lengths = [100_000, 150_000]

    def run() -> str:
        with Berth(link.address, retry_for=20) as berth, berth.sandboxes.create() as sandbox:
            process = sandbox.exec("seq 100000", reconnect=20, request_id=uuid.uuid4().hex)
            return "".join(chunk.text for chunk in process)

    assert await asyncio.to_thread(run) == "".join(f"{number}\n" for number in range(1, 100_001))
    assert link.cuts == 2


async def test_a_command_starts_once_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as made:
        # Cuts in the service's greeting, between it and the first response, and in that response.
        link.lengths = [20, 70, 110, 150, 200]
        async with AsyncBerth(link.address, retry_for=20) as other:
            sandbox = type(made)(other.transport, made.info)
            async with sandbox.exec(
                "echo once >> times; cat times", reconnect=20, request_id=uuid.uuid4().hex
            ) as process:
                assert (await process.result()).stdout == "once\n"
        # The whole response may arrive in fewer bytes than the last of them.
        assert link.cuts >= 4


async def test_a_command_without_a_name_is_not_started_twice(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as made:
        link.lengths = [70]
        async with AsyncBerth(link.address, retry_for=20) as other:
            sandbox = type(made)(other.transport, made.info)
            with pytest.raises(ConnectionLostError, match="may have started") as raised:
                await sandbox.exec("echo once >> times").wait()
            assert raised.value.process_id == ""
        assert link.cuts == 1


async def test_a_command_starts_once_though_its_reader_gave_up_waiting(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as sandbox, AsyncBerth(link.address) as other:
        there = await other.sandboxes.get(sandbox.sandbox_id)
        process = there.exec("echo once >> times; cat times", reconnect=60)
        link.passing.clear()
        reading = asyncio.create_task(process.read())
        while not await sandbox.processes(show_ended=True):
            await asyncio.sleep(0.05)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        link.passing.set()
        assert (await process.result()).stdout == "once\n"


@pytest.mark.parametrize("request_id", ["", uuid.uuid4().hex])
@pytest.mark.parametrize("how", ["loop", "block", "close"])
async def test_a_command_whose_start_is_on_its_way_ends_with_its_reader(
    link: Link, berth: AsyncBerth, how: str, request_id: str
) -> None:
    async with berth.sandboxes.create() as sandbox, AsyncBerth(link.address) as other:
        there = await other.sandboxes.get(sandbox.sandbox_id)
        # However long the service would wait for its reader.
        process = there.exec("sleep 1000", reconnect=600, request_id=request_id and request_id + how)
        link.passing.clear()
        reading = asyncio.ensure_future(process.__aenter__() if how == "block" else process.wait())
        while not await sandbox.processes():
            await asyncio.sleep(0.01)
        if how != "close":
            reading.cancel()
        closing = asyncio.ensure_future(other.close() if how == "close" else asyncio.sleep(0))
        [failure] = await asyncio.gather(reading, return_exceptions=True)
        link.passing.set()
        await closing
        late = time.monotonic() + 30
        while await sandbox.processes() and time.monotonic() < late:
            await asyncio.sleep(0.01)
        assert await sandbox.processes() == []
        assert isinstance(failure, errors.CanceledError if how == "close" else asyncio.CancelledError)


async def test_a_command_that_could_not_start_is_not_kept(sandbox: AsyncSandbox) -> None:
    async def failed() -> weakref.ref[AsyncProcess]:
        process = sandbox.exec("cat", stdin=b"x", working_dir="/no/such", detach=True)
        with pytest.raises(errors.InvalidArgumentError):
            await process.start()
        return weakref.ref(process)

    process = await failed()
    gc.collect()
    assert process() is None


async def test_a_call_that_is_not_made_before_its_client_is_closed_is_canceled(address: str) -> None:
    request = sandbox_pb2.GetStatsRequest()
    berth, sync_berth = AsyncBerth(address), Berth(address)
    method, sync_method = berth.transport.stubs.sandboxes.GetStats, sync_berth.transport.stubs.sandboxes.GetStats
    await berth.close()
    sync_berth.close()
    [failure] = await asyncio.gather(berth.transport.unary(method, request), return_exceptions=True)
    assert isinstance(failure, errors.CanceledError)
    [failure] = await asyncio.gather(
        asyncio.to_thread(sync_berth.transport.unary, sync_method, request), return_exceptions=True
    )
    assert isinstance(failure, errors.CanceledError)


async def test_a_canceled_create_that_would_have_failed_is_silent(link: Link) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    async with AsyncBerth(link.address) as berth:
        await berth.sandboxes.stats()
        link.passing.clear()
        creating = asyncio.ensure_future(berth.sandboxes.create(memory_bytes=1))
        await asyncio.sleep(0)
        creating.cancel()
        await asyncio.wait([creating])
        link.passing.set()
        # What the cancellation left to do ends before the client is closed.
        while berth.transport._tasks:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
        gc.collect()
    assert reports == []


async def test_a_sandbox_is_made_once_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    mark = uuid.uuid4().hex
    link.lengths = [20, 70, 110, 150, 200]
    async with AsyncBerth(link.address, retry_for=20) as other:
        async with other.sandboxes.create(labels={"mark": mark}):
            assert len(await berth.sandboxes.list(labels={"mark": mark})) == 1
    assert link.cuts == 5 and await berth.sandboxes.list(labels={"mark": mark}) == []


async def test_reads_are_made_again_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as sandbox:
        await sandbox.files.write("file", "content")
        async with AsyncBerth(link.address, retry_for=20) as other:
            link.lengths = [20, 70, 110]
            there = await other.sandboxes.get(sandbox.sandbox_id)
            assert link.cuts == 3
            for read in (
                lambda: there.files.read("file"),
                lambda: there.files.list(),
                lambda: there.processes(),
                lambda: other.sessions.tools(),
                lambda: other.workspaces.list(),
                lambda: other.runs.list(),
            ):
                cuts = link.cuts
                link.lengths = [20]
                link.cut()
                await read()
                assert link.cuts == cuts + 1


async def test_streams_that_read_start_again_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    async def outcome(items: AsyncIterator[object]) -> str:
        try:
            return "read" if [item async for item in items] else "empty"
        except errors.BerthError as error:
            return error.code

    await berth.workspaces.create("start/again")
    await berth.workspaces.create("start/other")
    async with berth.sandboxes.create() as sandbox:
        await sandbox.files.write("file", "content")
        async with AsyncBerth(link.address, retry_for=60) as other:
            there = await other.sandboxes.get(sandbox.sandbox_id)
            files = there.files
            for items in (
                files.download_chunks("file"),
                files.download_archive("file"),
                other.workspaces.export_archive("start/again"),
            ):
                cuts = link.cuts
                link.lengths = [20]
                link.cut()
                assert await outcome(items) == "read"
                assert link.cuts == cuts + 1
            link.lengths = [20]
            link.cut()
            assert await outcome(other.workspaces.diff("start/again", "start/other")) == "empty"


async def test_reads_without_asyncio_are_made_again(link: Link) -> None:
    # In a process of its own: asyncio's calls would let gRPC connect for those without.
    program = """
import sys
from berth import Berth
with Berth(sys.argv[1], retry_for=20) as berth:
    print(berth.sandboxes.stats().max_sandboxes)
"""
    link.lengths = [20, 70]
    reading = await asyncio.create_subprocess_exec(sys.executable, "-c", program, link.address, stdout=PIPE)
    output, _ = await reading.communicate()
    assert output.strip().isdigit()
    assert link.cuts == 2


async def test_stdin_is_written_once_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    data = os.urandom(6 << 20)
    async with berth.sandboxes.create() as made:
        async with AsyncBerth(link.address, retry_for=20) as other:
            sandbox = type(made)(other.transport, made.info)
            async with sandbox.exec("cat", keep_stdin_open=True, reconnect=20) as process:
                reading = asyncio.create_task(process.result(max_output_bytes=16 << 20))
                for start in range(0, len(data), 1 << 20):
                    link.cut()
                    await process.write(data[start : start + (1 << 20)])
                await process.close_stdin()
                assert (await reading).stdout_bytes == data


async def test_long_stdin_is_written_once_wherever_the_connection_breaks(link: Link, berth: AsyncBerth) -> None:
    data = bytes(range(256)) * 30_000
    # However long other calls are retried.
    async with AsyncBerth(link.address, retry_for=0) as far, berth.sandboxes.create() as sandbox:
        same = await far.sandboxes.get(sandbox.sandbox_id)
        async with same.exec("cat", stdin=data, reconnect=20) as process:
            echoed = b""
            for cut in (1, 2, 3, None):
                while cut is None or len(echoed) < cut << 20:
                    chunk = await process.read()
                    if chunk is None:
                        break
                    echoed += chunk.data
                if cut is not None:
                    link.cut()
            assert echoed == data
            assert process.status and process.status.ok


async def test_downloads_and_events_go_on(link: Link, berth: AsyncBerth) -> None:
    data = os.urandom(6 << 20)
    async with berth.sandboxes.create() as made:
        await made.files.write("large", data)
        link.lengths = [1 << 20, 3 << 20]
        async with AsyncBerth(link.address, retry_for=20) as other:
            sandbox = type(made)(other.transport, made.info)
            assert b"".join([part async for part in sandbox.files.download_chunks("large")]) == data
            assert link.cuts == 2
            async with other.sandboxes.events(sandbox_id=made.sandbox_id) as events:
                seen = [await events.read(), await events.read()]
                assert [event.type for event in seen if event] == ["CREATING", "RUNNING"]
                link.cut()
                await made.update(labels={"a": "b"})
                event = await events.read()
                assert event is not None and event.type == "UPDATED"


async def test_each_break_of_a_watch_has_its_own_time(
    link: Link, berth: AsyncBerth, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, answers, convert = 0.0, 0, _convert.sandbox_event

    def counted(answer: sandbox_pb2.WatchEventsResponse) -> SandboxEvent | None:
        nonlocal answers
        answers += 1
        return convert(answer)

    monkeypatch.setattr("berth._retry.monotonic", lambda: time.monotonic() + late)
    monkeypatch.setattr("berth._convert.sandbox_event", counted)
    async with berth.sandboxes.create() as made, AsyncBerth(link.address) as other:
        async with other.sandboxes.events(sandbox_id=made.sandbox_id) as events:
            seen = [await events.read(), await events.read()]
            assert [event.type for event in seen if event] == ["CREATING", "RUNNING"]
            reading = asyncio.create_task(events.read())
            for _ in range(2):
                # It has read everything: the service answers with a keepalive.
                before, since = answers, time.monotonic()
                link.cut()
                while answers == before and time.monotonic() < since + 10:
                    await asyncio.sleep(0.01)
                assert answers > before and not reading.done()
                late += 3600
            await made.update(labels={"a": "b"})
            event = await reading
            assert event is not None and event.type == "UPDATED"


async def test_a_watch_that_is_canceled_while_it_is_entered_ends(link: Link, berth: AsyncBerth) -> None:
    async def is_watched() -> bool:
        return (await sandbox.refresh()).active_operations > 0

    async with berth.sandboxes.create() as sandbox, AsyncBerth(link.address) as other:
        changes = (await other.sandboxes.get(sandbox.sandbox_id)).files.watch()
        link.passing.clear()
        entering = asyncio.create_task(changes.__aenter__())
        while not await is_watched():
            await asyncio.sleep(0.01)
        entering.cancel()
        await asyncio.wait([entering])
        link.passing.set()
        late = time.monotonic() + 30
        while await is_watched() and time.monotonic() < late:
            await asyncio.sleep(0.01)
        assert not await is_watched()


async def test_a_silent_call_notices_that_its_service_is_gone(
    link: Link, berth: AsyncBerth, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth._endpoint._PING_INTERVAL_MS", 100)
    monkeypatch.setattr("berth._endpoint._PING_TIMEOUT_MS", 1000)
    async with berth.sandboxes.create() as sandbox, AsyncBerth(link.address) as other:
        far = await other.sandboxes.get(sandbox.sandbox_id)
        running = asyncio.create_task(far.run("sleep 1000"))
        while not await sandbox.processes():
            await asyncio.sleep(0.01)
        # By itself gRPC sends two pings in a silent call, a second apart.
        await asyncio.sleep(3)
        link.passing.clear()
        done, _ = await asyncio.wait([running], timeout=30)
        link.passing.set()
        assert done
        with pytest.raises(errors.UnavailableError):
            await running


async def test_what_cannot_be_restored_says_what_was_received(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as made:
        async with AsyncBerth(link.address, retry_for=0.5) as other:
            sandbox = type(made)(other.transport, made.info)
            command = "echo 12345; echo abc >&2; read line; echo $line"
            process = sandbox.exec(command, keep_stdin_open=True, reconnect=0.5, detach=True)
            got = ""
            while len(got) < 10:
                chunk = await process.read()
                assert chunk is not None
                got += chunk.text
            link.open = False
            link.cut()
            with pytest.raises(ConnectionLostError, match="6 bytes of stdout and 4 of stderr") as raised:
                await process.read()
        error = raised.value
        assert isinstance(error, errors.UnavailableError)
        assert (error.process_id, error.stdout_received, error.stderr_received) == (process.process_id, 6, 4)
        async with made.attach(
            error.process_id, stdout_offset=error.stdout_received, stderr_offset=error.stderr_received
        ) as rest:
            await rest.write("rest\n")
            assert (await rest.result()).stdout == "rest\n"


async def test_a_reader_decides_how_long_a_connection_may_take_to_be_restored(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as sandbox, sandbox.exec("printf started; exec sleep 1000") as process:
        async with AsyncBerth(link.address) as other:
            attached = type(sandbox)(other.transport, sandbox.info).attach(process.process_id, reconnect=0.3)
            chunk = await attached.read()
            assert chunk is not None
            link.open = False
            link.cut()
            with pytest.raises(ConnectionLostError, match=r"within 0\.3 s") as raised:
                await attached.read()
        assert raised.value.stdout_received == len(chunk.text)


class NewerService(sandbox_pb2_grpc.SandboxServiceServicer, process_pb2_grpc.ProcessServiceServicer):
    """Answers like a service that is newer than this client: with unknown enum values, fields and events."""

    def __init__(self) -> None:
        self.tokens: list[object] = []

    async def GetSandbox(  # noqa: N802
        self,
        request: sandbox_pb2.GetSandboxRequest,
        context: grpc.aio.ServicerContext[sandbox_pb2.GetSandboxRequest, sandbox_pb2.GetSandboxResponse],
    ) -> sandbox_pb2.GetSandboxResponse:
        self.tokens.append(dict(context.invocation_metadata() or ()).get("authorization"))
        if request.sandbox_id == "refused":
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, 999)
        if request.sandbox_id == "later":
            await refuse(context, grpc.StatusCode.UNAVAILABLE, error_pb2.ERROR_REASON_ENGINE_UNAVAILABLE)
        if request.sandbox_id == "token":
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, error_pb2.ERROR_REASON_UNAUTHENTICATED)
        sandbox = sandbox_pb2.Sandbox(sandbox_id="new", generation=1)
        set_number(sandbox, 3, 99)
        set_number(sandbox, 6, 77)
        set_number(sandbox, 1000, 1)
        return sandbox_pb2.GetSandboxResponse(sandbox=sandbox)

    async def Exec(  # noqa: N802
        self,
        request: process_pb2.ExecRequest,
        context: grpc.aio.ServicerContext[process_pb2.ExecRequest, process_pb2.ExecResponse],
    ) -> AsyncIterator[process_pb2.ExecResponse]:
        yield process_pb2.ExecResponse(started=process_pb2.Started(process_id="prc_new"))
        unknown = process_pb2.ExecResponse()
        set_number(unknown, 1000, 1)
        yield unknown
        yield process_pb2.ExecResponse(output=process_pb2.Output(stream=process_pb2.OUTPUT_STREAM_STDOUT, data=b"text"))
        exited = process_pb2.ExitStatus(exit_code=0)
        set_number(exited, 1, 55)
        yield process_pb2.ExecResponse(exited=exited)


def set_number(message: sandbox_pb2.Sandbox | process_pb2.ExecResponse | process_pb2.ExitStatus, field: int, value: int) -> None:
    """Sets a field of the message on the wire, whether or not this client knows it."""
    tag = field << 3
    message.MergeFromString(bytes([tag & 0x7F | 0x80, tag >> 7]) + bytes([value]) if tag > 0x7F else bytes([tag, value]))


async def refuse(
    context: grpc.aio.ServicerContext[sandbox_pb2.GetSandboxRequest, sandbox_pb2.GetSandboxResponse],
    code: grpc.StatusCode,
    reason: int,
) -> None:
    """Ends the call like the service does, with a detail that has the reason."""
    detail = error_pb2.ErrorDetail(metadata={"key": "value"})
    detail.retry_after.FromMilliseconds(1500)
    packed = detail.SerializeToString() + bytes([1 << 3, reason & 0x7F | 0x80, reason >> 7])
    any_bytes = field(1, b"type.googleapis.com/berth.v1.ErrorDetail") + field(2, packed)
    status = bytes([1 << 3, code.value[0]]) + field(2, b"no") + field(3, any_bytes)
    await context.abort(code, "no", (("grpc-status-details-bin", status),))


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of at most 127 bytes."""
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


@pytest.fixture
async def newer() -> AsyncIterator[tuple[NewerService, str]]:
    server = grpc.aio.server()
    # It implements only two of the methods.
    service = NewerService()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]
    sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(service, server)
    process_pb2_grpc.add_ProcessServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield service, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_a_newer_service(newer: tuple[NewerService, str]) -> None:
    service, address = newer
    async with AsyncBerth(address, token="secret", retry_for=0) as berth:
        sandbox = await berth.sandboxes.get("new")
        assert (sandbox.info.state, sandbox.info.isolation) == ("UNKNOWN_99", "UNKNOWN_77")
        result = await sandbox.exec("true").result()
        assert (result.stdout, result.status.cause, result.ok) == ("text", "UNKNOWN_55", False)
        with pytest.raises(errors.FailedPreconditionError) as raised:
            await berth.sandboxes.get("refused")
        assert raised.value.reason == "UNKNOWN_999" and raised.value.metadata == {"key": "value"}
        assert raised.value.retry_after == 1.5
        with pytest.raises(errors.EngineUnavailableError) as later:
            await berth.sandboxes.get("later")
        assert later.value.retry_after == 1.5
        with pytest.raises(errors.UnauthenticatedError):
            await berth.sandboxes.get("token")
        # An older service does not have these.
        with pytest.raises(errors.UnimplementedError):
            await berth.sandboxes.stats()
    assert set(service.tokens) == {"Bearer secret"}


def test_every_reason_has_its_class() -> None:
    for number, value in error_pb2.ErrorReason.DESCRIPTOR.values_by_number.items():
        name = value.name.removeprefix("ERROR_REASON_")
        if number != 0:
            made = errors.class_of(name)
            assert made is not None and issubclass(made, errors.BerthError), name
            words = made.__name__.removesuffix("Error")
            assert words.lower() == name.replace("_", "").lower(), name


async def test_a_client_made_before_a_fork_says_so(address: str) -> None:
    # With its support for forks on, a grpcio before 1.53 sometimes never returns from os.fork(); with it off, a client
    # created in the child hangs (https://github.com/grpc/grpc/issues/31885). So with these versions the child only
    # checks the old client's error.
    makes_its_own = tuple(int(part) for part in grpc.__version__.split(".")[:2]) >= (1, 53)
    # In a separate process, because this one has an event loop and connections.
    program = f"""
import os, sys
from berth import Berth
parent = Berth()
parent.sandboxes.stats()
child = os.fork()
if child == 0:
    try:
        parent.sandboxes.stats()
        os._exit(1)
    except RuntimeError as error:
        if {makes_its_own}:
            with Berth() as own:
                own.sandboxes.stats()
        os._exit(0 if "before a fork" in str(error) else 2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "true" if makes_its_own else "false"}
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=environment)
    assert await running.wait() == 0


async def test_a_file_that_changed_while_the_connection_was_broken_is_told_at_once(link: Link, berth: AsyncBerth) -> None:
    async with berth.sandboxes.create() as made:
        await made.files.write("large", os.urandom(12 << 20))
        async with AsyncBerth(link.address, retry_for=600) as other:
            files = type(made)(other.transport, made.info).files
            chunks = files.download_chunks("large")
            await anext(chunks)
            await made.files.write("large", "more", append=True)
            link.cut()
            async with asyncio.timeout(120):
                with pytest.raises(errors.AbortedError, match="changed while the connection was broken"):
                    [chunk async for chunk in chunks]
