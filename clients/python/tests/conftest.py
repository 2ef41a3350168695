"""Shared fixtures. The tests need a running service at BERTH_ADDRESS; python.test.ts runs them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from berth import AsyncBerth, AsyncSandbox, Berth


@pytest.fixture
def address() -> str:
    """The address of the service."""
    return os.environ["BERTH_ADDRESS"]


@pytest.fixture
async def berth() -> AsyncIterator[AsyncBerth]:
    """A client."""
    async with AsyncBerth() as client:
        yield client


@pytest.fixture
async def sandbox(berth: AsyncBerth) -> AsyncIterator[AsyncSandbox]:
    """A sandbox."""
    async with berth.sandboxes.create() as made:
        yield made


@pytest.fixture
def sync_berth() -> Iterator[Berth]:
    """A client without asyncio."""
    with Berth() as client:
        yield client


class Link:
    """A connection to the service that can be cut. Forwards until `cut`, or until a number of bytes came from the
    service.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: How many bytes each of the next connections forwards from the service before it is cut.
        self.lengths: list[int] = []
        self.cuts = 0
        #: While it is clear, data from the service is held back.
        self.passing = asyncio.Event()
        self.passing.set()
        self.open = True
        self.port = 0

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Starts to accept connections."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Breaks every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        """Breaks every connection and accepts no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if not self.open:
            writer.transport.abort()
            return
        host, port = self._target.rsplit(":", 1)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        both = {writer, far_writer}
        self._writers |= both
        room = self.lengths.pop(0) if self.lengths else None
        try:
            await asyncio.gather(
                self._pass(reader, far_writer, None, None, both),
                self._pass(far_reader, writer, room, self.passing, both),
            )
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        room: int | None,
        gate: asyncio.Event | None,
        both: set[asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if gate is not None:
                    await gate.wait()
                if room is not None:
                    data = data[:room]
                    room -= len(data)
                writer.write(data)
                await writer.drain()
                if room == 0:
                    self.cuts += 1
                    break
        for each in both:
            each.transport.abort()


@pytest.fixture
async def link(address: str) -> AsyncIterator[Link]:
    """A connection to the service that can be cut."""
    made = Link(address)
    await made.start()
    yield made
    await made.stop()
