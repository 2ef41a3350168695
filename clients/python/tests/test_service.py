"""Sandboxes, files, sessions, workspaces and runs."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import os
import pickle
import socket
import stat
import tarfile
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from berth import (
    AsyncBerth,
    AsyncSandbox,
    Berth,
    CommandError,
    Mount,
    RunMessage,
    SandboxSpec,
    SessionResource,
    ToolCall,
    ToolOutput,
    ToolResult,
    errors,
)
from berth._async.transport import AsyncTransport
from berth._sync.transport import Transport
from berth.agent import Agent, Step
from berth.types import SandboxEvent
from conftest import Link


async def test_a_sandbox_from_its_making_to_its_end(berth: AsyncBerth) -> None:
    mark = uuid.uuid4().hex
    async with berth.sandboxes.create(
        labels={"mark": mark}, env={"A": "b"}, idle_timeout=90.5, command_timeout=60
    ) as sandbox:
        info = sandbox.info
        assert (info.state, info.spec.env["A"], info.spec.idle_timeout) == ("RUNNING", "b", 90.5)
        assert info.create_time is not None and info.create_time.tzinfo is not None
        assert [each.sandbox_id for each in await berth.sandboxes.list(labels={"mark": mark})] == [info.sandbox_id]
        assert (await sandbox.update(labels={"mark": mark, "more": "1"})).spec.labels["more"] == "1"
        assert (await sandbox.keep_alive()).expire_time is not None
        stats = await berth.sandboxes.stats()
        assert info.sandbox_id in [each.sandbox_id for each in stats.sandboxes] and stats.max_sandboxes > 0
    ended = await sandbox.refresh()
    assert ended.state == "TERMINATED" and ended.termination is not None and ended.termination.cause == "DELETED"
    events = [event.type async for event in _until_the_end(berth, info.sandbox_id)]
    assert events == ["CREATING", "RUNNING", "UPDATED", "DELETING", "TERMINATED"]
    await berth.sandboxes.delete("no-such-sandbox")


async def test_what_a_sandbox_uses(berth: AsyncBerth) -> None:
    async with berth.sandboxes.create(memory_bytes=200 << 20, cpu_millis=1000, pids_limit=90) as sandbox:
        idle = await sandbox.usage()
        assert (idle.memory_limit_bytes, idle.cpu_limit_millis, idle.process_limit) == (200 << 20, 1000, 90)
        async with sandbox.exec(["python3", "-c", "x = bytearray(64 << 20)\nwhile True: pass"]):
            busy = await sandbox.usage()
            async with asyncio.timeout(120):
                while busy.memory_bytes < 64 << 20 or busy.cpu_time < idle.cpu_time + 0.2:
                    await asyncio.sleep(0.02)
                    busy = await sandbox.usage()
            assert busy.processes > idle.processes and busy.measure_time > idle.measure_time
            assert busy.measure_time.tzinfo is not None
    with pytest.raises(errors.SandboxNotRunningError):
        await sandbox.usage()


def test_what_a_sandbox_uses_without_asyncio(sync_berth: Berth) -> None:
    with sync_berth.sandboxes.create() as sandbox:
        before = sandbox.refresh().last_used_time
        usage = sandbox.usage()
        assert usage.memory_bytes > 0 and usage.processes > 0 and usage.cpu_time >= 0
        assert sandbox.refresh().last_used_time == before


async def _until_the_end(berth: AsyncBerth, sandbox_id: str) -> AsyncIterator[SandboxEvent]:
    async for event in berth.sandboxes.events(sandbox_id=sandbox_id):
        yield event
        if event.type == "TERMINATED":
            return


async def test_an_id_of_ones_own(berth: AsyncBerth) -> None:
    own = f"own-{uuid.uuid4().hex}"
    async with berth.sandboxes.create(sandbox_id=own):
        with pytest.raises(errors.SandboxExistsError) as raised:
            await berth.sandboxes.create(sandbox_id=own)
        assert isinstance(raised.value, errors.AlreadyExistsError)
        assert (await (await berth.sandboxes.get(own)).run("echo here")).stdout == "here\n"


async def test_no_call_reaches_a_later_sandbox_with_the_same_id(berth: AsyncBerth, tmp_path: Path) -> None:
    chosen = f"job-{uuid.uuid4()}"
    first = await berth.sandboxes.create(sandbox_id=chosen)
    await berth.sandboxes.delete(chosen, grace=0)
    async with berth.sandboxes.create(sandbox_id=chosen) as second:
        await second.files.write("kept", "of the second")
        files = first.files
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "refresh": first.refresh,
            "usage": first.usage,
            "keep_alive": first.keep_alive,
            "update": lambda: first.update(labels={"of": "the first"}),
            "pause": first.pause,
            "resume": first.resume,
            "run": lambda: first.run("rm kept"),
            "exec": lambda: first.exec("rm kept").result(),
            "detached": lambda: first.exec("rm kept", detach=True).start(),
            "read": lambda: files.read("kept"),
            "write": lambda: files.write("kept", ""),
            "append": lambda: files.write("kept", "and more", append=True),
            "upload": lambda: files.upload(io.BytesIO(), "kept"),
            "download": lambda: files.download("kept", io.BytesIO()),
            "upload_archive": lambda: files.upload_archive(bytes(1024)),
            "download_archive": lambda: files.download_dir(".", tmp_path),
            "stat": lambda: files.stat("kept"),
            "exists": lambda: files.exists("kept"),
            "list": files.list,
            "mkdir": lambda: files.mkdir("directory"),
            "move": lambda: files.move("kept", "moved"),
            "remove": lambda: files.remove("kept"),
            "watch": files.watch().__aenter__,
        }
        others: list[str] = []
        for name, call in calls.items():
            try:
                await call()
                others.append(name)
            except errors.BerthError as error:
                if error.reason != "SANDBOX_REPLACED":
                    others.append(name)
        assert others == []
        # The first one is gone, as its deletion should have it.
        await first.delete()
        async with first:
            pass
        assert (await second.refresh()).state == "RUNNING"
        again = await berth.sandboxes.get(chosen)
        assert await again.files.read_text("kept") == "of the second"


async def test_a_create_that_is_given_up_leaves_nothing(link: Link, berth: AsyncBerth) -> None:
    mark = uuid.uuid4().hex
    async with AsyncBerth(link.address) as other:
        await other.sandboxes.stats()
        # The service has created it, and its response is on the way.
        link.passing.clear()
        making = asyncio.ensure_future(_made(other, mark))
        async for _ in berth.sandboxes.events():
            if await berth.sandboxes.list(labels={"mark": mark}):
                break
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        link.passing.set()
    assert await berth.sandboxes.list(labels={"mark": mark}) == []


@pytest.mark.parametrize("is_canceled", [False, True])
async def test_a_create_that_runs_when_its_client_is_closed_leaves_nothing(
    link: Link, berth: AsyncBerth, *, is_canceled: bool
) -> None:
    other = AsyncBerth(link.address)
    await other.sandboxes.stats()
    mark = uuid.uuid4().hex
    making = await _pending(link, berth, _made(other, mark), mark)
    if is_canceled:
        making.cancel()
    await _closed(link, other.transport, other.close())
    [failure] = await asyncio.gather(making, return_exceptions=True)
    assert await berth.sandboxes.list(labels={"mark": mark}) == []
    assert isinstance(failure, asyncio.CancelledError if is_canceled else errors.CanceledError)


async def test_a_create_in_a_thread_leaves_nothing_when_its_client_is_closed(
    link: Link, berth: AsyncBerth
) -> None:
    other = Berth(link.address)
    await asyncio.to_thread(other.sandboxes.stats)
    mark = uuid.uuid4().hex

    def create() -> object:
        return other.sandboxes.create(labels={"mark": mark})

    making = await _pending(link, berth, asyncio.to_thread(create), mark)
    await _closed(link, other.transport, asyncio.to_thread(other.close))
    [failure] = await asyncio.gather(making, return_exceptions=True)
    assert await berth.sandboxes.list(labels={"mark": mark}) == []
    assert isinstance(failure, errors.CanceledError)


async def test_a_create_that_begins_while_its_client_is_closed_is_refused(
    address: str, berth: AsyncBerth
) -> None:
    mark = uuid.uuid4().hex

    may_end = threading.Event()

    class Open:
        """What a client waits for when it is closed."""

        def end(self) -> None:
            may_end.wait(20)

    class AsyncOpen:
        """The same for asyncio."""

        async def end(self) -> None:
            await asyncio.to_thread(may_end.wait, 20)

    other, sync_other = AsyncBerth(address), Berth(address)
    await other.sandboxes.stats()
    await asyncio.to_thread(sync_other.sandboxes.stats)
    other.transport.adopt(AsyncOpen())
    sync_other.transport.adopt(Open())
    closings = [asyncio.create_task(other.close()), asyncio.create_task(asyncio.to_thread(sync_other.close))]
    while not (other.transport.closed and sync_other.transport.closed):
        await asyncio.sleep(0.01)
    failures = await asyncio.gather(
        _made(other, mark),
        other.runs.create(mark),
        asyncio.to_thread(sync_other.sandboxes.create, labels={"mark": mark}),
        asyncio.to_thread(sync_other.runs.create, mark),
        return_exceptions=True,
    )
    may_end.set()
    await asyncio.gather(*closings)
    assert [type(failure) for failure in failures] == [errors.CanceledError] * 4
    assert await berth.sandboxes.list(labels={"mark": mark}) == []


def test_what_is_created_has_its_request_id_before_another_thread_can_undo_it(
    sync_berth: Berth, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = sync_berth.transport
    retried, ids = transport.retried, list[str]()

    def record(method: Any, request: Any, retry_for: float | None = None) -> Any:
        ids.append(request.request_id)
        return retried(method, request, retry_for)

    monkeypatch.setattr(transport, "retried", record)
    with sync_berth.sandboxes.create():
        sync_berth.runs.delete(sync_berth.runs.create().run_id)
    created, ran = ids[:2]
    assert created and ran


async def _pending(
    link: Link, berth: AsyncBerth, create: Coroutine[object, object, object], mark: str
) -> asyncio.Task[object]:
    """Starts a create whose sandbox is there, and whose response is on the way."""
    link.passing.clear()
    making = asyncio.create_task(create)
    while not await berth.sandboxes.list(labels={"mark": mark}):
        await asyncio.sleep(0.01)
    return making


async def _closed(
    link: Link, transport: AsyncTransport | Transport, close: Coroutine[object, object, None]
) -> None:
    """Closes a client while responses are on the way."""
    closing = asyncio.create_task(close)
    while not transport.closed:
        await asyncio.sleep(0.01)
    link.passing.set()
    await closing


class Looping(Agent):
    """An agent whose step is never reached."""

    async def step(self, step: Step) -> str:
        raise AssertionError("a run that was given up must not start")


async def test_a_run_that_is_given_up_while_it_is_created_leaves_nothing(
    link: Link, berth: AsyncBerth
) -> None:
    async with AsyncBerth(link.address) as other:
        await other.sandboxes.stats()
        names = [uuid.uuid4().hex, uuid.uuid4().hex]
        makings = (Looping(other, name=names[0]).run(), other.runs.create(names[1]))
        for making, created in zip(makings, names, strict=True):
            # The service has created it, and its response is on the way.
            link.passing.clear()
            task = asyncio.ensure_future(making)
            while created not in [run.name for run in await berth.runs.list()]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            link.passing.set()
    assert [run.name for run in await berth.runs.list() if run.name in names] == []


async def test_an_agent_that_is_closed_while_its_run_is_created_leaves_no_run(link: Link, berth: AsyncBerth) -> None:
    name = uuid.uuid4().hex
    async with AsyncBerth(link.address) as other:
        await other.sandboxes.stats()
        agent = Looping(other, name=name)
        # The service has created the run, and its response is on the way.
        link.passing.clear()
        running = asyncio.create_task(agent.run())
        while name not in [run.name for run in await berth.runs.list()]:
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(agent.close())
        await asyncio.sleep(0)
        link.passing.set()
        await closing
        with pytest.raises(errors.CanceledError, match="canceled or closed"):
            await running
        assert (agent.state.value, agent.run_id) == ("IDLE", "")
    assert name not in [run.name for run in await berth.runs.list()]


def test_an_interrupt_is_not_hidden_by_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Berth("127.0.0.1:1", retry_for=0.1) as unreachable:
        monkeypatch.setattr("berth._sync.transport.time.sleep", interrupt)
        raised: BaseException | None = None
        try:
            unreachable.sandboxes.create()
        except BaseException as error:  # noqa: BLE001 - which one it is, is the test
            raised = error
        assert isinstance(raised, KeyboardInterrupt)


async def _made(berth: AsyncBerth, mark: str) -> AsyncSandbox:
    return await berth.sandboxes.create(labels={"mark": mark})


async def test_what_is_wrong_with_a_spec_is_said(berth: AsyncBerth) -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised:
        await berth.sandboxes.create(memory_bytes=1)
    assert raised.value.reason == "INVALID_ARGUMENT" and raised.value.metadata
    with pytest.raises(ValueError, match="EGRESS"):
        await berth.sandboxes.create_from(SandboxSpec(network="ALL"))  # type: ignore[arg-type] # pyright: ignore
    with pytest.raises(errors.NotAllowedError):
        await berth.sandboxes.create(mounts=[Mount("/etc/x", host_path="/etc")])
    with pytest.raises(errors.InvalidArgumentError, match="egress_domains"):
        await berth.sandboxes.create(egress_domains=["10.0.0.1"])
    with pytest.raises(TypeError, match=r"env\['PORT'\] must be a str, not int"):
        await berth.sandboxes.create(env={"PORT": 80})  # type: ignore[dict-item] # pyright: ignore


async def test_sandboxes_that_tasks_create(berth: AsyncBerth) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(berth.sandboxes.create()) for _ in range(2)]
    made = [task.result() for task in tasks]
    assert [(await each.run("echo here")).stdout for each in made] == ["here\n"] * 2
    for each in made:
        await each.delete(grace=0)
    canceled = asyncio.create_task(berth.sandboxes.create())
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled


async def test_files(sandbox: AsyncSandbox) -> None:
    files = sandbox.files
    written = await files.write("deep/er/a.txt", "one\n", mode=0o600)
    assert (written.size, written.mode, written.kind) == (4, 0o600, "REGULAR")
    await files.write("deep/er/a.txt", "two\n", append=True)
    assert await files.read_text("deep/er/a.txt") == "one\ntwo\n"
    assert await files.read("deep/er/a.txt", offset=4, limit=2) == b"tw"
    await files.write(b"\xff\xfe", b"raw")
    assert await files.read(b"\xff\xfe") == b"raw"
    listed = await files.list()
    assert [each.raw_name for each in listed] == [b"deep", b"\xff\xfe"] and listed[0].is_dir
    assert (await files.stat("deep/er/a.txt")).name.endswith("/deep/er/a.txt")
    await files.move("deep/er/a.txt", "b.txt")
    assert await files.exists("b.txt") and not await files.exists("deep/er/a.txt")
    with pytest.raises(errors.DirectoryNotEmptyError):
        await files.remove("deep")
    await files.remove("deep", recursive=True)
    await files.remove("deep", allow_missing=True)
    await files.mkdir("x/y")
    assert (await files.stat("x/y")).is_dir
    made = await files.mkdir("slash//")
    assert (made.name, made.raw_name) == ("slash", b"slash")
    moved = await files.move("slash", b"moved\xff/")
    assert (moved.name, moved.raw_name) == ("moved\ufffd", b"moved\xff")
    assert (await files.mkdir("/")).name == "/"
    with pytest.raises(errors.FileKindError):
        await files.read("x/y")
    path = PurePosixPath("pure") / "path"
    assert (await files.write(path, bytearray(b"one"))).name == "pure/path"
    await files.write(path, memoryview(b" two"), append=True)
    await files.move(path, PurePosixPath("pure/moved"))
    assert await files.read_text(PurePosixPath("pure/moved")) == "one two"
    with pytest.raises(TypeError, match=r"must be str or bytes, not BytesIO; files\.upload takes open files"):
        await files.write(path, io.BytesIO(b"one"))  # type: ignore[arg-type] # pyright: ignore
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    for age in (0, 1.5):
        await sandbox.run(f"touch -d @-{age} old", check=True)
        assert (await files.stat("old")).modify_time == epoch - timedelta(seconds=age)
    with pytest.raises(FileNotFoundError):
        await files.read("nothing")
    with pytest.raises(errors.FileNotFoundError) as raised:
        await files.read("nothing")
    assert raised.value.code == "NOT_FOUND" and "nothing" in raised.value.message


async def test_large_files_both_ways(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    data = os.urandom(12 * 1024 * 1024)
    await sandbox.files.write("large", data)
    assert await sandbox.files.read("large") == data
    assert await sandbox.files.read("large", offset=100, limit=9 * 1024 * 1024) == data[100 : 100 + 9 * 1024 * 1024]
    assert await sandbox.files.download("large", tmp_path / "large") == len(data)
    assert (tmp_path / "large").read_bytes() == data
    await sandbox.files.upload(tmp_path / "large", "again/large", mode=0o755)
    assert (await sandbox.run("cmp large again/large && stat -c %a again/large", check=True)).stdout == "755\n"
    await sandbox.files.upload(io.BytesIO(b"read"), "from-an-open-file")
    into = io.BytesIO()
    await sandbox.files.download("from-an-open-file", into)
    assert into.getvalue() == b"read"
    await sandbox.files.write("large", data[:9_000_000], append=True)
    assert (await sandbox.files.stat("large")).size == len(data) + 9_000_000
    with pytest.raises(FileNotFoundError):
        await sandbox.files.download("nothing", tmp_path / "nothing")
    assert os.listdir(tmp_path) == ["large"]


async def test_an_upload_whose_source_fails_leaves_the_old(sandbox: AsyncSandbox) -> None:
    class Failing:
        def read(self, size: int, /) -> bytes:
            raise OSError("the disk is gone")

    await sandbox.files.write("kept", "old")
    with pytest.raises(OSError, match="the disk is gone"):
        await sandbox.files.upload(Failing(), "kept")
    assert await sandbox.files.read("kept") == b"old"


async def test_directories_both_ways(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/a").write_text("a")
    (source / "b").symlink_to("sub/a")
    assert (await sandbox.files.upload_dir(source, "copied")).entry_count == 3
    assert await sandbox.files.read("copied/b") == b"a"
    await sandbox.run("mkfifo copied/pipe && ln copied/pipe copied/same", check=True)
    await sandbox.files.download_dir("copied", tmp_path / "back")
    assert (tmp_path / "back/sub/a").read_text() == "a" and (tmp_path / "back/b").is_symlink()
    assert sorted(os.listdir(tmp_path / "back")) == ["b", "sub"]
    # A link that a sandbox created does not lead out of the directory.
    await sandbox.run("ln -s /etc/hostname copied/out", check=True)
    with pytest.raises(tarfile.FilterError):
        await sandbox.files.download_dir("copied", tmp_path / "third")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../escaped"))
    with pytest.raises(errors.ArchiveRejectedError) as raised:
        await sandbox.files.upload_archive(packed.getvalue())
    assert raised.value.metadata["entry"] == "../escaped"


def tree_with_special_files(place: Path) -> Path:
    """A directory that has a file, a link, and what an archive cannot carry."""
    (place / "sub").mkdir(parents=True)
    (place / "sub/file").write_text("text")
    (place / "link").symlink_to("sub/pipe")
    os.mkfifo(place / "pipe")
    os.mkfifo(place / "sub/pipe")
    # By a relative path: that of a socket has at most 107 bytes.
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(place):
        listener.bind("socket")
    if os.geteuid() == 0:
        os.mknod(place / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    return place


async def test_an_uploaded_directory_leaves_out_special_files(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    source = tree_with_special_files(tmp_path / "source")
    # Opening a pipe would wait for a writer.
    uploaded = await asyncio.wait_for(sandbox.files.upload_dir(source, "special"), 30)
    assert uploaded.entry_count == 3
    assert [entry.name for entry in await sandbox.files.list("special")] == ["link", "sub"]
    assert [entry.name for entry in await sandbox.files.list("special/sub")] == ["file"]


async def test_a_watch_sees_what_happens_once_it_is_entered(sandbox: AsyncSandbox) -> None:
    async with sandbox.files.watch(interval=0.1) as changes:
        await sandbox.files.write("new", "1")
        change = await changes.read()
        assert change is not None and (change.type, change.path) == ("CREATED", "new")
        await sandbox.files.remove("new")
        async for change in changes:
            assert (change.type, change.file) == ("REMOVED", None)
            break
    assert await changes.read() is None


async def test_a_watch_whose_reader_gave_up_waiting_misses_nothing(sandbox: AsyncSandbox) -> None:
    written = ["first", "second", "last"]
    seen: list[str] = []

    async def read() -> None:
        change = await changes.read()
        assert change is not None
        seen.append(change.path)

    async with sandbox.files.watch(interval=0.1) as changes:
        for name in written:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(read(), 0.01)
            await sandbox.files.write(name, name)
        # A watch that starts only now sees these, but not what was written before. Each scan is in order of names.
        async with sandbox.exec("while :; do echo > zz$((i += 1)); sleep 0.1; done"):
            while not any(path.startswith("zz") for path in seen):
                await read()
    assert sorted(path for path in seen if not path.startswith("zz")) == sorted(written)


async def test_sessions(berth: AsyncBerth) -> None:
    async with berth.worker() as worker:
        made = await worker.create("bash", SessionResource("python", ttl=60), "no-such-type")
        assert [each.status for each in made] == ["CREATED", "CREATED", "FAILED"]
        assert isinstance(made[2].error, errors.InvalidArgumentError)
        with pytest.raises(errors.InvalidArgumentError):
            await worker.create("no-such-type")
        assert (await worker.create("bash"))[0].status == "EXISTS"
        await worker.execute("bash:run", {"command": "cd /tmp; x=5"})
        result = await worker.execute("bash:run", {"command": "echo $x in $PWD"}, trace_id="t1")
        assert isinstance(result.data, dict) and result.data["stdout"] == "5 in /tmp\n"
        assert isinstance(result.data["exit_code"], int) and result.meta.trace_id == "t1"
        assert not result.meta.temporary_session
        late = await worker.execute("bash:run", {"command": "sleep 1000"}, timeout=0.3)
        assert late.code == 5006
        parts = [part async for part in worker.execute_stream("bash:run", {"command": "echo live"})]
        assert parts[0] == ToolOutput("stdout", b"live\n") and isinstance(parts[-1], ToolResult)
        batch = await worker.execute_batch(
            [
                ToolCall("bash:run", {"command": "true"}),
                ToolCall("bash:nothing"),
                ToolCall("bash:run", {"command": "true"}),
            ],
            stop_on_error=True,
        )
        assert isinstance(batch[0], ToolResult) and isinstance(batch[1], errors.ToolNotFoundError) and batch[2] is None
        new = await worker.reinitialize("bash", {"cwd": "/"})
        assert new.status == "REINITIALIZED" and new.old_session_id != new.new_session_id
        assert [each.status for each in await worker.refresh("bash", "files")] == ["REFRESHED", "NOT_FOUND"]
        assert sorted(each.resource_type for each in await worker.list()) == ["bash", "python"]
        with pytest.raises(errors.ToolNotFoundError):
            await worker.execute("bash:nothing")
    assert await berth.sessions.list(worker_id=worker.worker_id) == []
    tools = await berth.sessions.tools("bash")
    assert [tool.name for tool in tools.tools] == ["bash:run"]
    assert "command" in str(tools.tools[0].params_schema) and tools.resource_types[0].name == "bash"
    alone = await worker.execute("bash:run", {"command": "echo $$"})
    assert alone.meta.temporary_session


async def test_attachments(berth: AsyncBerth) -> None:
    # Stands in for matplotlib, which the image need not have.
    code = """
import sys, types
class Figure:
    def savefig(self, file, format): file.write(b"picture")
plots = types.SimpleNamespace(get_fignums=lambda: [1], figure=lambda number: Figure(), close=lambda number: None)
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = plots
"""
    async with berth.worker() as worker:
        await worker.create("python")
        result = await worker.execute("python:run", {"code": code})
        [attachment] = result.attachments
        assert (attachment.media_type, attachment.content) == ("image/png", b"picture")


async def test_workspaces(berth: AsyncBerth) -> None:
    workspaces = berth.workspaces
    name = f"work/{uuid.uuid4().hex}"
    trace = f"trace-{uuid.uuid4().hex}"
    made = await workspaces.create(name)
    assert made == await workspaces.create(name) and made.path.startswith("/") and made.ref_count == 0
    ensured = await workspaces.ensure_sandbox(name)
    assert ensured.sandbox is not None and not ensured.reused and ensured.unavailable_reason == ""
    await ensured.sandbox.files.write("kept", "across sandboxes")
    assert (await workspaces.ensure_sandbox(name)).reused
    fork = await workspaces.fork(name, f"{name}/fork")
    assert fork.path != made.path and fork.sandbox_id == ""
    assert [change async for change in workspaces.diff(name, f"{name}/fork")] == []
    empty = await workspaces.create(f"{name}/empty")
    [change] = [change async for change in workspaces.diff(empty.workspace_id, name)]
    assert (change.type, change.path, change.differences) == ("ADDED", "kept", ())
    assert change.base_file is None and change.file is not None and change.file.size == 16
    with pytest.raises(errors.WorkspaceNotFoundError):
        [change async for change in workspaces.diff(name, f"{name}/unknown")]
    assert await workspaces.cleanup(f"{name}/empty", force=True) is None
    with pytest.raises(errors.WorkspaceExistsError):
        await workspaces.fork(name, f"{name}/fork")
    assert await workspaces.cleanup(f"{name}/fork", force=True) is None
    assert (await workspaces.stop_sandbox(name)).sandbox_id == ""
    async with berth.sandboxes.create(mounts=[Mount("/mnt/work", workspace_id=name)]) as other:
        assert await other.files.read("/mnt/work/kept") == b"across sandboxes"
    assert (await workspaces.add_trace_ref(name, trace)).trace_refs == (trace,)
    found = await workspaces.lookup_trace(trace)
    assert found is not None and found.workspace_id == name
    with pytest.raises(errors.WorkspaceInUseError) as raised:
        await workspaces.cleanup(name)
    assert raised.value.metadata["ref_count"] == "1"
    assert (await workspaces.remove_trace_ref(name, trace)).ref_count == 0
    assert await workspaces.lookup_trace(trace) is None
    packed = b"".join([part async for part in workspaces.export_archive(name)])
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert "kept" in [entry.name.removeprefix("./") for entry in tar]
    copy = f"copy/{uuid.uuid4().hex}"
    assert (await workspaces.import_archive(copy, io.BytesIO(packed))).size == len(b"across sandboxes")
    assert {name, copy} <= {each.workspace_id for each in (await workspaces.list()).workspaces}
    assert (await workspaces.get(copy, measure_size=True)).size is not None
    for each in (name, copy):
        assert await workspaces.cleanup(each, force=True) is None
    with pytest.raises(errors.WorkspaceNotFoundError):
        await workspaces.get(name)


async def test_runs(berth: AsyncBerth) -> None:
    run = await berth.runs.create("by hand", max_steps=3, next_step_prompt="Go on.")
    assert (run.state, run.outcome, run.max_duration) == ("IDLE", "UNSPECIFIED", None)
    started, step = await berth.runs.start(run.run_id, "Do it.")
    assert (started.state, step.step, step.prompt) == ("RUNNING", 1, "Go on.")
    await berth.runs.keep_alive(run.run_id, step)
    report = await berth.runs.report(run.run_id, step, "looked", messages=[RunMessage("ASSISTANT", "I looked.")])
    assert report.next_step is not None and report.run_end is None
    with pytest.raises(errors.RunStateError) as raised:
        await berth.runs.report(run.run_id, step, "late")
    assert raised.value.metadata["current_step"] == "2"
    with pytest.raises(ValueError, match="CONTINUE, FINISHED, ERROR"):
        await berth.runs.report(run.run_id, step, outcome="DONE")
    # As a program does that continues another's run.
    current = (await berth.runs.get(run.run_id)).current_step
    await berth.runs.keep_alive(run.run_id, current)
    end = await berth.runs.report(run.run_id, current, "done", outcome="FINISHED")
    assert end.run_end is not None and end.run_end.summary == "Step 1: looked\nStep 2: done"
    kept = await berth.runs.get(run.run_id, include_messages=True)
    assert [(each.role, each.content) for each in kept.messages][:2] == [("USER", "Do it."), ("ASSISTANT", "I looked.")]
    assert (await berth.runs.reset(run.run_id)).state == "IDLE"
    assert run.run_id in [each.run_id for each in await berth.runs.list()]
    await berth.runs.delete(run.run_id)
    with pytest.raises(errors.RunNotFoundError):
        await berth.runs.get(run.run_id)


async def test_a_run_is_watched_to_its_deletion(berth: AsyncBerth) -> None:
    run = await berth.runs.create()
    await berth.runs.start(run.run_id)
    async with berth.runs.watch(run.run_id) as events:
        seen = [await events.read(), await events.read()]
        await berth.runs.delete(run.run_id)
        seen += [event async for event in events]
    assert [event.type for event in seen if event] == ["CREATED", "STARTED", "ENDED", "DELETED"]


def test_one_client_serves_several_threads(sync_berth: Berth) -> None:
    results: list[str] = []
    with sync_berth.sandboxes.create() as sandbox:

        def work(number: int) -> None:
            text = "".join(chunk.text for chunk in sandbox.exec(f"echo {number}; sleep 0.2; echo {number}"))
            results.append(text + sandbox.run(f"echo {number}").stdout)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == [f"{number}\n" * 3 for number in range(8)]


def test_the_client_without_asyncio_has_the_same(sync_berth: Berth, tmp_path: Path) -> None:
    with sync_berth.sandboxes.create() as sandbox:
        sandbox.files.write("a", b"x" * (9 << 20))
        assert sandbox.files.download("a", tmp_path / "a") == 9 << 20
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/b").write_text("b")
        os.mkfifo(tmp_path / "sub/pipe")
        sandbox.files.upload_dir(tmp_path / "sub", "sub")
        sandbox.files.download_dir("sub", tmp_path / "back")
        assert (tmp_path / "back/b").read_text() == "b"
        assert os.listdir(tmp_path / "back") == ["b"]
        with sandbox.files.watch(interval=0.1) as changes:
            sandbox.files.write("new", "1")
            assert next(iter(changes)).path == "new"
    with sync_berth.worker() as worker:
        worker.create("bash")
        parts = list(worker.execute_stream("bash:run", {"command": "echo live"}))
        assert parts[0] == ToolOutput("stdout", b"live\n")
    with pytest.raises(errors.RunNotFoundError):
        sync_berth.runs.get("run_none")


async def test_a_client_belongs_to_its_event_loop_and_its_process(address: str) -> None:
    client = AsyncBerth(address)
    await client.sandboxes.stats()

    def elsewhere() -> str:
        with pytest.raises(RuntimeError) as raised:
            asyncio.run(_stats(client))
        return str(raised.value)

    assert "another event loop" in await asyncio.to_thread(elsewhere)
    await client.close()
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.sandboxes.stats()


async def _stats(client: AsyncBerth) -> None:
    await client.sandboxes.stats()


def test_what_calls_return_and_raise_goes_to_another_process(sync_berth: Berth) -> None:
    with sync_berth.sandboxes.create(labels={"a": "b"}) as sandbox:
        info = pickle.loads(pickle.dumps(sandbox.info))
        assert info == sandbox.info and info.spec == sandbox.info.spec
        with pytest.raises(CommandError) as failed:
            sandbox.run("echo why >&2; exit 3", check=True)
        again = pickle.loads(pickle.dumps(failed.value))
        assert str(again) == str(failed.value) and again.result.exit_code == 3
        with pytest.raises(errors.FileNotFoundError) as missing:
            sandbox.files.read("nothing")
        for same in (pickle.loads(pickle.dumps(missing.value)), copy.deepcopy(missing.value)):
            assert type(same) is errors.FileNotFoundError and str(same) == str(missing.value)
            assert (same.reason, same.metadata) == ("FILE_NOT_FOUND", missing.value.metadata)
    lost = errors.ConnectionLostError("lost", process_id="prc_1", stdout_received=3)
    assert pickle.loads(pickle.dumps(lost)).stdout_received == 3


async def test_a_file_of_the_last_moment_is_listed(sandbox: AsyncSandbox) -> None:
    await sandbox.run("touch -d @253402300799.999999999 last", check=True)
    [listed] = await sandbox.files.list()
    assert listed.modify_time == datetime.max.replace(tzinfo=timezone.utc)


async def test_a_large_file_that_is_replaced_is_read_as_one(sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 9 * 1024 * 1024
    await sandbox.files.write("large", b"a" * size)
    await sandbox.files.write("other", b"b" * size)
    download = sandbox.files.download_chunks

    async def replaced(path: str, *, offset: int = 0, user: str = "") -> AsyncIterator[bytes]:
        await sandbox.files.move("other", "large", overwrite=True)
        async for chunk in download(path, offset=offset, user=user):
            yield chunk

    monkeypatch.setattr(sandbox.files, "download_chunks", replaced)
    assert await sandbox.files.read("large") == b"b" * size


async def test_no_link_of_an_archive_makes_a_special_file(
    sandbox: AsyncSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive() -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            # No system makes a symbolic link that long, but the name in it is valid.
            for name, kind, to in [
                ("pipe", tarfile.FIFOTYPE, ""),
                ("link", tarfile.LNKTYPE, "pipe"),
                ("next", tarfile.LNKTYPE, "./link"),
                ("symbolic", tarfile.SYMTYPE, "./" * 3000 + "pipe"),
                ("file", tarfile.REGTYPE, ""),
            ]:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, to
                tar.addfile(member)
        return packed.getvalue()

    async def replaced(path: str, *, user: str = "") -> AsyncIterator[bytes]:
        yield archive()

    monkeypatch.setattr(sandbox.files, "download_archive", replaced)
    await sandbox.files.download_dir("any", tmp_path / "back")
    assert os.listdir(tmp_path / "back") == ["file"]


async def test_what_has_no_size_is_uploaded(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 200_000), daemon=True)
    writer.start()
    assert (await sandbox.files.upload(pipe, "pipe")).size == 200_000
    await sandbox.files.upload("/proc/version", "version")
    assert await sandbox.files.read("version") == Path("/proc/version").read_bytes()


async def test_uploads_from_pipes_leave_threads_to_others(sandbox: AsyncSandbox) -> None:
    await sandbox.files.write("source", b"x" * 3_000_000)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as source, open(write_end, "wb") as target:
        uploading = asyncio.create_task(sandbox.files.upload(source, "target"))
        await asyncio.sleep(0.2)
        downloading = asyncio.create_task(sandbox.files.download("source", target))
        done, _ = await asyncio.wait([downloading], timeout=30)
        target.close()
        assert done
        assert (await uploading).size == 3_000_000


async def test_a_pipe_is_opened_while_other_tasks_go_on(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Lets a loop go on that waits for it.
    late = threading.Timer(20, pipe.write_bytes, [b"late"])
    late.start()
    uploading = asyncio.create_task(sandbox.files.upload(pipe, "piped"))
    await asyncio.sleep(0.1)
    late.cancel()
    threading.Thread(target=pipe.write_bytes, args=[b"soon"], daemon=True).start()
    await uploading
    assert await sandbox.files.read("piped") == b"soon"
    read: list[bytes] = []
    downloading = asyncio.create_task(sandbox.files.download("piped", pipe))
    await asyncio.sleep(0.1)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert await downloading == 4
    reader.join()
    assert read == [b"soon"]


async def test_of_a_file_that_grows_its_beginning_is_uploaded(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 5_000_000)
    uploaded = threading.Event()

    def grow() -> None:
        with log.open("ab", buffering=0) as opened:
            while not uploaded.is_set() and opened.tell() < 500_000_000:
                opened.write(b"y" * 100_000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        assert (await sandbox.files.upload(log, "log")).size >= 5_000_000
    finally:
        uploaded.set()
        writer.join()


async def test_a_file_that_a_download_replaces_keeps_its_mode(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    await sandbox.files.write("file", "new", mode=0o644)
    target = tmp_path / "private"
    target.write_text("old")
    target.chmod(0o600)
    await sandbox.files.download("file", target)
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


async def test_a_download_goes_where_its_target_leads(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    await sandbox.files.write("file", "new")
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / ("n" * 255)
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert await sandbox.files.download("file", pipe) == 3
    reader.join(20)
    assert read == [b"new"] and pipe.is_fifo()
    real.write_text("old")
    link.symlink_to(real)
    await sandbox.files.download("file", link)
    assert real.read_text() == "new" and link.is_symlink()
    with pytest.raises(IsADirectoryError):
        await sandbox.files.download("file", tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(["link", real.name, "pipe"])
