"""Times calls of the Python client, alternating with the same calls on the generated stubs. Prints JSON: milliseconds.

Usage: python python_client.py ADDRESS ROUNDS
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

import grpc

from berth import AsyncBerth, Berth
from berth.v1 import process_pb2, process_pb2_grpc, sandbox_pb2, sandbox_pb2_grpc

Sample = dict[str, list[float]]
WARM_UP = 100


async def in_turn(
    rounds: int, facade: Callable[[], Awaitable[object]], raw: Callable[[], Awaitable[object]]
) -> Sample:
    """Times two calls alternately, so that other load on the machine affects both."""
    sample: Sample = {"berth": [], "raw": []}
    for number in range(WARM_UP + rounds):
        # The order changes, so that neither always comes second.
        for name, call in (("berth", facade), ("raw", raw))[:: 1 if number % 2 else -1]:
            started = perf_counter()
            await call()
            if number >= WARM_UP:
                sample[name].append((perf_counter() - started) * 1000)
    return sample


async def with_asyncio(address: str, rounds: int) -> dict[str, Sample]:
    """AsyncBerth against the stubs over grpc.aio."""
    async with AsyncBerth(address) as berth, grpc.aio.insecure_channel(address) as channel:
        processes = process_pb2_grpc.ProcessServiceStub(channel)
        sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        async with berth.sandboxes.create() as sandbox:
            run = process_pb2.RunCommandRequest(sandbox_id=sandbox.sandbox_id, shell="true")
            execute = process_pb2.ExecRequest(sandbox_id=sandbox.sandbox_id, shell="true")
            get = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox.sandbox_id)

            async def raw_exec() -> None:
                async for _ in processes.Exec(execute):
                    pass

            async def raw_run() -> object:
                return await processes.RunCommand(run)

            async def raw_get() -> object:
                return await sandboxes.GetSandbox(get)

            return {
                "AsyncBerth: run": await in_turn(rounds, lambda: sandbox.run("true"), raw_run),
                "AsyncBerth: exec": await in_turn(rounds, lambda: sandbox.exec("true").wait(), raw_exec),
                "AsyncBerth: refresh": await in_turn(rounds, sandbox.refresh, raw_get),
            }


def waiting(act: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    """A blocking call in a form that can be awaited."""

    async def call() -> object:
        return act()

    return call


async def without_asyncio(address: str, rounds: int) -> dict[str, Sample]:
    """Berth against the stubs."""
    with Berth(address) as berth, grpc.insecure_channel(address) as channel:
        processes = process_pb2_grpc.ProcessServiceStub(channel)
        sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        with berth.sandboxes.create() as sandbox:
            run = process_pb2.RunCommandRequest(sandbox_id=sandbox.sandbox_id, shell="true")
            execute = process_pb2.ExecRequest(sandbox_id=sandbox.sandbox_id, shell="true")
            get = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox.sandbox_id)
            return {
                "Berth: run": await in_turn(
                    rounds, waiting(lambda: sandbox.run("true")), waiting(lambda: processes.RunCommand(run))
                ),
                "Berth: exec": await in_turn(
                    rounds,
                    waiting(lambda: sandbox.exec("true").wait()),
                    waiting(lambda: list(processes.Exec(execute))),
                ),
                "Berth: refresh": await in_turn(
                    rounds, waiting(sandbox.refresh), waiting(lambda: sandboxes.GetSandbox(get))
                ),
            }


def main(address: str, rounds: int) -> None:
    """Measures both."""
    samples = asyncio.run(with_asyncio(address, rounds))
    samples.update(asyncio.run(without_asyncio(address, rounds)))
    print(json.dumps(samples))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
