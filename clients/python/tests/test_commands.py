"""Commands: their output as it arrives, their stdin, their end."""

from __future__ import annotations

import asyncio
import enum
import hashlib
import signal
import uuid
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

import pytest

from berth import AsyncBerth, AsyncProcess, AsyncSandbox, Berth, Chunk, CommandError, Gap, errors


async def gone(sandbox: AsyncSandbox, process_id: str) -> str:
    """Waits for the end of a process by reading all of its output. Returns how it ended."""
    return (await sandbox.attach(process_id).wait()).cause


async def test_a_result_has_both_streams_and_the_exit_code(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert not result.ok and result.status.cause == "EXITED" and not result.truncated
    with pytest.raises(CommandError, match="exit code 3: err") as raised:
        await sandbox.run(["sh", "-c", "echo err >&2; exit 3"], check=True)
    assert raised.value.result.exit_code == 3


async def test_a_command_gets_what_it_is_given(sandbox: AsyncSandbox) -> None:
    result = await sandbox.run('echo "$A $(pwd)"; cat', env={"A": "ä"}, working_dir="/tmp", stdin="text é")
    assert result.stdout == "ä /tmp\ntext é"
    assert (await sandbox.run(["echo", "a b", "$HOME"])).stdout == "a b $HOME\n"
    assert (await sandbox.run("no-such-program")).exit_code == 127
    for timeout in (0.3, 3, 30):
        late = await sandbox.run("echo before; sleep 1000", timeout=timeout)
        assert late.status.cause == "TIMED_OUT"
        # On a busy machine it may have been too late even for that.
        if late.stdout != "":
            break
    assert late.stdout == "before\n"


async def test_what_is_given_wrong_is_named(sandbox: AsyncSandbox, sync_berth: Berth) -> None:
    assert (await sandbox.run("pwd", working_dir=PurePosixPath("/tmp"))).stdout == "/tmp\n"
    wrong: Any
    for wrong, message in (
        (None, "the command must be a str or a sequence of str, not NoneType"),
        (b"true", "the command must be a str or a sequence of str, not bytes"),
        (["sleep", 1], r"command\[1\] must be a str, not int"),
    ):
        with pytest.raises(TypeError, match=message):
            await sandbox.run(wrong)
    for wrong in (timedelta(seconds=1), "1s"):
        with pytest.raises(TypeError, match="a time is a number of seconds, not "):
            await sandbox.run("true", timeout=wrong)

    async def callback(text: str) -> None:
        raise AssertionError(text)

    same = sync_berth.sandboxes.get(sandbox.sandbox_id)
    wrong = callback
    with pytest.raises(TypeError, match="a coroutine function, which only AsyncBerth can call"):
        await asyncio.to_thread(same.run, "echo lost", on_stdout=wrong)


async def test_long_output_keeps_head_and_tail(sandbox: AsyncSandbox) -> None:
    command = "echo first; seq 100000; echo last"
    result = await sandbox.run(command, max_output_bytes=1000)
    heard: list[str] = []
    live = await sandbox.run(command, max_output_bytes=1000, on_stdout=heard.append)
    assert result.truncated and live.truncated
    assert result.stdout_gap == live.stdout_gap == Gap(500, result.status.stdout_bytes - 500)
    assert result.stderr_gap is None and live.stderr_gap is None
    assert len(result.stdout_bytes) == 1000 and live.stdout_bytes == result.stdout_bytes
    assert result.stdout.startswith("first\n1\n") and result.stdout.endswith("\nlast\n")
    assert "".join(heard).count("\n") == 100_002


async def test_0_is_the_default_output(sandbox: AsyncSandbox) -> None:
    command = "head -c 1100000 /dev/zero | tr '\\0' x"
    kept = [
        await sandbox.run(command, max_output_bytes=0),
        await sandbox.run(command, max_output_bytes=0, on_stdout=lambda _: None),
        await sandbox.exec(command).result(0),
    ]
    assert [len(each.stdout_bytes) for each in kept] == [1 << 20] * 3


async def test_stdin_longer_than_a_message(sandbox: AsyncSandbox, sync_berth: Berth) -> None:
    data = bytes(range(251)) * 21_000
    total = hashlib.sha256(data).hexdigest()
    same = sync_berth.sandboxes.get(sandbox.sandbox_id)
    again = {"request_id": uuid.uuid4().hex}
    every: list[dict[str, Any]] = [{}, again, again, {"on_stdout": print}]
    for options in every:
        result = await sandbox.run("sha256sum; echo end >&2", stdin=data, check=True, **options)
        assert (result.stdout[:64], result.stderr) == (total, "end\n")
    assert (await asyncio.to_thread(same.run, "sha256sum", stdin=data)).stdout[:64] == total
    # Its output comes while it reads, and more may be written.
    async with sandbox.exec("cat", stdin=data, keep_stdin_open=True) as process:
        reading = asyncio.create_task(process.result(max_output_bytes=16 << 20))
        await process.write("more")
        await process.close_stdin()
        assert (await reading).stdout_bytes == data + b"more"
    # It need not read all of it.
    assert len((await sandbox.run("head -c 3", stdin=bytes(30 << 20))).stdout_bytes) == 3
    late = await sandbox.run("exec sleep 100", stdin=bytes(30 << 20), timeout=0.3)
    assert late.status.cause == "TIMED_OUT"
    with same.exec("head -c 3", stdin=bytes(30 << 20)) as sync_process:
        assert len(sync_process.result().stdout_bytes) == 3
    # A detached one has all of it once it has started.
    detached = await sandbox.exec("sha256sum > sum", stdin=data, detach=True).start()
    assert (await sandbox.attach(detached.process_id).wait()).exit_code == 0
    assert (await sandbox.run("cat sum")).stdout[:64] == total
    # One whose reader leaves gets the rest of it.
    left = sandbox.exec("echo started; sha256sum > sum", stdin=data, detach=True, timeout=120)
    async for _ in left:
        break
    assert (await sandbox.attach(left.process_id).wait()).cause == "EXITED"
    assert (await sandbox.run("cat sum")).stdout[:64] == total


async def test_iterating_gives_the_bytes_and_whole_characters(sandbox: AsyncSandbox) -> None:
    # One character arrives in two pieces, and one is never completed.
    wait = "until [ -e read{} ]; do sleep 0.02; done"
    command = rf"printf 'a\303'; {wait.format(1)}; printf '\251b'; {wait.format(2)}; printf '\303'"
    chunks: list[Chunk] = []
    async for chunk in sandbox.exec(command):
        chunks.append(chunk)
        # The next piece only once this one has been read: otherwise they may arrive as one.
        await sandbox.files.write(f"read{len(chunks)}", "")
    assert b"".join(chunk.data for chunk in chunks) == b"a\xc3\xa9b\xc3"
    assert "".join(chunk.text for chunk in chunks) == "aéb\ufffd"
    assert chunks[0] == Chunk("stdout", 0, b"a\xc3", "a")
    places = [(chunk.offset, len(chunk.data)) for chunk in chunks]
    assert all(offset + size == after for (offset, size), (after, _) in zip(places, places[1:]))


async def test_callbacks_hear_both_streams(sandbox: AsyncSandbox) -> None:
    out: list[str] = []
    err: list[str] = []

    async def on_stderr(text: str) -> None:
        await asyncio.sleep(0)
        err.append(text)

    status = await sandbox.exec("echo a; echo b >&2; echo c").wait(out.append, on_stderr)
    assert ("".join(out), "".join(err), status.ok) == ("a\nc\n", "b\n", True)


async def test_leaving_the_loop_ends_the_command(berth: AsyncBerth, sandbox: AsyncSandbox) -> None:
    process = sandbox.exec("echo ready; exec sleep 1000", reconnect=1000)
    async for chunk in process:
        assert chunk.text == "ready\n"
        break
    assert await asyncio.wait_for(gone(sandbox, process.process_id), 20) == "SIGNALED"
    assert process.status is None
    assert await process.read() is None


async def test_leaving_the_block_ends_the_command_and_not_the_loop_in_it(sandbox: AsyncSandbox) -> None:
    async with sandbox.exec("cat", keep_stdin_open=True, reconnect=1000) as process:
        for word in ("one\n", "two\n"):
            await process.write(word)
            async for chunk in process:
                assert chunk.text == word
                break
            else:
                raise AssertionError(f"the command ended before {word!r}")
    assert await asyncio.wait_for(gone(sandbox, process.process_id), 20) == "SIGNALED"


async def test_a_wait_that_is_given_up_ends_the_command(sandbox: AsyncSandbox) -> None:
    process = sandbox.exec("sleep 1000", reconnect=1000)
    await process.start()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait(), 0.2)
    assert await asyncio.wait_for(gone(sandbox, process.process_id), 20) == "SIGNALED"


async def test_a_read_that_is_given_up_loses_nothing(sandbox: AsyncSandbox) -> None:
    async with sandbox.exec("read line; echo $line", keep_stdin_open=True) as process:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.read(), 0.2)
        await process.write("later\n")
        assert (await process.result()).stdout == "later\n"


async def test_closing_the_client_ends_what_is_still_read(address: str, sandbox: AsyncSandbox) -> None:
    async with AsyncBerth(address) as other:
        process = (await other.sandboxes.get(sandbox.sandbox_id)).exec("sleep 1000", reconnect=1000)
        await process.start()
    assert await asyncio.wait_for(gone(sandbox, process.process_id), 20) == "SIGNALED"


async def test_closing_the_client_waits_for_who_ends_a_command(
    address: str, sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = AsyncBerth(address)
    process = (await other.sandboxes.get(sandbox.sandbox_id)).exec("sleep 1000", reconnect=1000)
    await process.start()
    asked, answered = asyncio.Event(), asyncio.Event()
    unary = other.transport.unary

    async def held(*given: Any) -> Any:
        asked.set()
        await answered.wait()
        return await unary(*given)

    monkeypatch.setattr(other.transport, "unary", held)
    ending = asyncio.create_task(process.end())
    await asked.wait()
    closing = asyncio.create_task(other.close())
    done, _ = await asyncio.wait([closing], timeout=0.2)
    answered.set()
    await asyncio.wait([ending, closing])
    assert not done
    assert await asyncio.wait_for(gone(sandbox, process.process_id), 20) == "SIGNALED"


async def test_a_detached_command_goes_on_and_is_attached_at_an_offset(sandbox: AsyncSandbox) -> None:
    async with sandbox.exec("echo 12345; read line; echo $line", keep_stdin_open=True, detach=True) as process:
        assert (await process.read()) is not None
    async with sandbox.attach(process.process_id, stdout_offset=3) as attached:
        first = await attached.read()
        assert first is not None and (first.offset, first.text) == (3, "45\n")
        # It asks the service for the offset of stdin.
        await attached.write("more\n")
        result = await attached.result()
    assert (result.stdout, result.exit_code) == ("more\n", 0)
    info = await sandbox.process(process.process_id)
    assert info.status is not None and info.status.ok and info.stdout_bytes == 11
    assert [each.process_id for each in await sandbox.processes(show_ended=True)] == [process.process_id]
    with pytest.raises(errors.OffsetOutOfRangeError):
        await sandbox.attach(process.process_id, stdout_offset=1000).wait()


async def test_stdin_of_any_size(sandbox: AsyncSandbox) -> None:
    async with sandbox.exec("cat; echo end >&2", stdin="a", keep_stdin_open=True) as process:
        waiting = asyncio.create_task(process.result(max_output_bytes=16 << 20))
        await process.write(b"b" * (5 << 20))
        await process.close_stdin()
        result = await waiting
        assert result.stdout_bytes == b"a" + b"b" * (5 << 20) and result.stderr == "end\n"
        with pytest.raises(errors.ProcessStateError):
            await process.write("late")
        await process.close_stdin()


async def test_a_terminal(sandbox: AsyncSandbox) -> None:
    async with sandbox.exec("stty size; read x; stty size", terminal=(100, 30)) as process:
        text = await heard(process, "30 100")
        await process.resize(120, 40)
        await process.write("go\n")
        text += await heard(process, "40 120")
    assert "30 100\r\n" in text


async def heard(process: AsyncProcess, wanted: str) -> str:
    """Reads until the wanted text arrives."""
    text = ""
    while wanted not in text:
        chunk = await process.read()
        assert chunk is not None, text
        text += chunk.text
    return text


async def test_signals(sandbox: AsyncSandbox) -> None:
    command = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    async with sandbox.exec(command) as process:
        await heard(process, "ready")
        await process.signal(signal.SIGINT)
        assert (await process.result()).exit_code == 7
        await process.kill()


async def test_signals_have_the_names_of_linux(sandbox: AsyncSandbox) -> None:
    class Elsewhere(enum.IntEnum):
        """As macOS numbers them."""

        SIGBUS = 10
        SIGUSR1 = 30

    for given, number in (
        ("SIGUSR1", 10),
        ("SIGPIPE", 13),
        ("SIGALRM", 14),
        (Elsewhere.SIGUSR1, 10),
        (10, 10),
        (Elsewhere.SIGBUS, 7),
    ):
        async with sandbox.exec(["sleep", "1000"]) as process:
            await process.signal(given)
            assert (await process.wait()).signal == number
            with pytest.raises(ValueError, match="'USR1' is not a signal: give its number, or a name such"):
                await process.signal("USR1")


async def test_every_signal_of_linux_has_its_name(sandbox: AsyncSandbox) -> None:
    for name, number in (("SIGPIPE", 13), ("SIGALRM", 14), ("SIGXCPU", 24)):
        async with sandbox.exec(["sleep", "1000"]) as process:
            try:
                await process.signal(name)
            except ValueError as refusal:
                raise AssertionError(name) from refusal
            assert (await process.wait()).signal == number


async def test_what_cannot_start_says_why(berth: AsyncBerth, sandbox: AsyncSandbox) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        await sandbox.exec("true", working_dir="/no/such/place").wait()
    with pytest.raises(errors.InvalidArgumentError):
        await sandbox.run("true", timeout=-1)
    with pytest.raises(ValueError, match="nan is not a number of seconds"):
        await sandbox.run("true", timeout=float("nan"))
    await sandbox.delete()
    with pytest.raises(errors.SandboxNotRunningError) as raised:
        await sandbox.run("true")
    assert raised.value.code == "FAILED_PRECONDITION"
    with pytest.raises(errors.SandboxNotFoundError) as unknown:
        await berth.sandboxes.get("no-such-sandbox")
    assert (unknown.value.reason, unknown.value.metadata["sandbox_id"]) == ("SANDBOX_NOT_FOUND", "no-such-sandbox")


def test_without_asyncio(sync_berth: Berth) -> None:
    with sync_berth.sandboxes.create() as sandbox:
        assert sandbox.run("echo hello", check=True).stdout == "hello\n"
        # Ends by itself in case leaving the loop does not end it.
        process = sandbox.exec("echo ready; exec sleep 120", reconnect=1000)
        for chunk in process:
            assert chunk.text == "ready\n"
            break
        assert sandbox.attach(process.process_id).wait().cause == "SIGNALED"
        with sandbox.exec("cat", keep_stdin_open=True) as entered:
            entered.write("text")
            entered.close_stdin()
            assert entered.result().stdout == "text"


async def test_a_detached_command_goes_on_where_nobody_reads_it(sandbox: AsyncSandbox) -> None:
    process = await sandbox.exec("head -c 200000000 /dev/zero; touch done", detach=True).start()
    async with asyncio.timeout(150):
        while not await sandbox.files.exists("done"):
            await asyncio.sleep(0.05)
    # Reading continues. Of the output in between, the beginning is lost.
    assert (await process.wait()).stdout_bytes == 200_000_000


async def test_what_is_written_behind_a_write_that_was_given_up_is_whole(sandbox: AsyncSandbox) -> None:
    command = "while [ ! -e go ]; do sleep 0.05; done; cat"
    async with sandbox.exec(command, keep_stdin_open=True) as process:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.write(b"a" * 3_000_000), 0.5)
        await sandbox.files.write("go", "")
        reading = asyncio.create_task(process.result(max_output_bytes=16 << 20))
        await process.write(b"b" * 100_000)
        await process.close_stdin()
        text = (await reading).stdout
    assert text.count("b") == 100_000 and text.lstrip("a") == "b" * 100_000


async def test_one_reads_and_another_writes_from_the_start(sandbox: AsyncSandbox) -> None:
    process = sandbox.exec("cat", keep_stdin_open=True)
    reading = asyncio.create_task(process.result())
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        await process.write("text")
        await process.close_stdin()
        assert (await reading).stdout == "text"


async def test_what_was_under_way_says_that_the_client_was_closed(address: str, sandbox: AsyncSandbox) -> None:
    other = AsyncBerth(address)
    there = await other.sandboxes.get(sandbox.sandbox_id)
    running = asyncio.create_task(there.run("sleep 1000"))
    # The client does not end a command that it attached to, so how that ends stays unknown.
    detached = await sandbox.exec("echo started; exec sleep 1000", detach=True).start()
    attached = there.attach(detached.process_id)
    assert await attached.read() is not None
    waiting = asyncio.create_task(attached.wait())
    while len(await sandbox.processes()) < 2:
        await asyncio.sleep(0.02)
    await other.close()
    # Not the CancelledError of a canceled task.
    ended = await asyncio.gather(running, waiting, return_exceptions=True)
    assert [(type(end), str(end)) for end in ended] == [(errors.CanceledError, "the client was closed")] * 2


async def test_a_download_says_that_the_client_was_closed(address: str, sandbox: AsyncSandbox) -> None:
    await sandbox.run("truncate -s 64M big", check=True)
    other, sync_other = AsyncBerth(address), Berth(address)
    chunks = (await other.sandboxes.get(sandbox.sandbox_id)).files.download_chunks("big")
    await anext(chunks)
    await other.close()

    def download() -> None:
        sync_chunks = sync_other.sandboxes.get(sandbox.sandbox_id).files.download_chunks("big")
        next(sync_chunks)
        sync_other.close()
        for _ in sync_chunks:
            pass

    async def rest() -> None:
        async for _ in chunks:
            pass

    ended = await asyncio.gather(rest(), asyncio.to_thread(download), return_exceptions=True)
    assert [type(end) for end in ended] == [errors.CanceledError] * 2


async def test_closing_a_client_ends_everything_at_once(address: str) -> None:
    berth = AsyncBerth(address)
    both = asyncio.Barrier(2)

    class Open:
        """Something that ends only while the other ends."""

        async def end(self) -> None:
            await both.wait()

    berth.transport.adopt(Open())
    berth.transport.adopt(Open())
    closing = asyncio.create_task(berth.close())
    done, _ = await asyncio.wait([closing], timeout=10)
    closing.cancel()
    assert done


def test_a_command_that_is_interrupted_before_its_start_is_not_started_again(
    sync_berth: Berth, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with sync_berth.sandboxes.create() as sandbox:
        process = sandbox.exec("echo here")
        monkeypatch.setattr("berth._sync.transport.Stream.read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.read()
        assert process.read() is None
        with pytest.raises(RuntimeError, match="left the command before it started"):
            process.start()
        # One with a request id continues.
        process = sandbox.exec("echo once", request_id=uuid.uuid4().hex)
        monkeypatch.setattr("berth._sync.transport.Stream.read", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.read()
        assert process.result().stdout == "once\n"
