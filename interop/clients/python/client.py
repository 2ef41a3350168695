"""Makes one call of the interop table with grpcio, and prints what came of it as JSON.

Usage: client.py sync|async ADDRESS SANDBOX CELL ARGUMENT, with gen/python on the path.
"""

import asyncio
import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_status import rpc_status

from berth.v1 import error_pb2, process_pb2, process_pb2_grpc, sandbox_pb2, sandbox_pb2_grpc


class Reader:
    """Counts and hashes what a stream brings."""

    def __init__(self):
        self.bytes, self.hash, self.exit_code = 0, hashlib.sha256(), None

    def add(self, response):
        event = response.WhichOneof("event")
        if event == "output":
            self.bytes += len(response.output.data)
            self.hash.update(response.output.data)
        elif event == "exited":
            self.exit_code = response.exited.exit_code

    def result(self):
        return {"bytes": self.bytes, "sha256": self.hash.hexdigest(), "exitCode": self.exit_code}


def code_of(error):
    return error.code().value[0]


def reason_of(error):
    detail = error_pb2.ErrorDetail()
    if not rpc_status.from_call(error).details[0].Unpack(detail):
        raise SystemExit("the detail is no ErrorDetail")
    return {"code": code_of(error), "reason": detail.reason, "metadata": dict(detail.metadata)}


def answer_of(response):
    return {"stdout": response.stdout.decode(), "exitCode": response.exit_status.exit_code}


def sync(address, sandbox, cell, argument):
    with grpc.insecure_channel(address) as channel:
        processes = process_pb2_grpc.ProcessServiceStub(channel)
        exec_request = process_pb2.ExecRequest(sandbox_id=sandbox, shell=argument)

        def run(shell):
            return answer_of(processes.RunCommand(process_pb2.RunCommandRequest(sandbox_id=sandbox, shell=shell)))

        def read(stream):
            reader = Reader()
            for response in stream:
                reader.add(response)
            return reader.result()

        if cell == "unary":
            return run(argument)
        if cell == "stream":
            return read(processes.Exec(exec_request))
        if cell == "reason":
            try:
                sandbox_pb2_grpc.SandboxServiceStub(channel).GetSandbox(
                    sandbox_pb2.GetSandboxRequest(sandbox_id=argument)
                )
            except grpc.RpcError as error:
                return reason_of(error)
        if cell == "deadline":
            try:
                read(processes.Exec(exec_request, timeout=2))
            except grpc.RpcError as error:
                return {"code": code_of(error)}
        if cell == "cancel":
            stream = processes.Exec(exec_request)
            next(response for response in stream if response.HasField("output"))
            stream.cancel()
            try:
                read(stream)
            except grpc.RpcError as error:
                return {"code": code_of(error)}
        if cell == "parallel":
            with ThreadPoolExecutor(100) as threads:
                answers = threads.map(run, [f"{argument} {index}" for index in range(100)])
                return {"outputs": [answer["stdout"] for answer in answers]}
    raise SystemExit(f"{cell}: no such call, or it did not fail")


async def asynchronous(address, sandbox, cell, argument):
    async with grpc.aio.insecure_channel(address) as channel:
        processes = process_pb2_grpc.ProcessServiceStub(channel)
        exec_request = process_pb2.ExecRequest(sandbox_id=sandbox, shell=argument)

        async def run(shell):
            return answer_of(
                await processes.RunCommand(process_pb2.RunCommandRequest(sandbox_id=sandbox, shell=shell))
            )

        async def read(stream):
            reader = Reader()
            async for response in stream:
                reader.add(response)
            return reader.result()

        if cell == "unary":
            return await run(argument)
        if cell == "stream":
            return await read(processes.Exec(exec_request))
        if cell == "reason":
            try:
                await sandbox_pb2_grpc.SandboxServiceStub(channel).GetSandbox(
                    sandbox_pb2.GetSandboxRequest(sandbox_id=argument)
                )
            except grpc.aio.AioRpcError as error:
                return reason_of(error)
        if cell == "deadline":
            try:
                await read(processes.Exec(exec_request, timeout=2))
            except grpc.aio.AioRpcError as error:
                return {"code": code_of(error)}
        if cell == "cancel":
            stream = processes.Exec(exec_request)
            async for response in stream:
                if response.HasField("output"):
                    break
            stream.cancel()
            try:
                await read(stream)
            except asyncio.CancelledError:
                return {"code": (await stream.code()).value[0]}
        if cell == "parallel":
            answers = await asyncio.gather(*(run(f"{argument} {index}") for index in range(100)))
            return {"outputs": [answer["stdout"] for answer in answers]}
    raise SystemExit(f"{cell}: no such call, or it did not fail")


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    print(json.dumps(sync(*arguments) if mode == "sync" else asyncio.run(asynchronous(*arguments))))
