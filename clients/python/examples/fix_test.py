"""A scripted agent that fixes a failing test in a sandbox: no model, the same loop.

Usage: python fix_test.py [ADDRESS] [IMAGE]      (127.0.0.1:7070; an image with python3)
"""

import asyncio
import sys

import grpc

from berth import Agent, Step, StepResult
from berth.v1 import file_pb2, file_pb2_grpc, process_pb2, process_pb2_grpc, sandbox_pb2

BROKEN = "def add(a, b):\n    return a - b\n"
TEST = """import unittest
from calc import add

class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""


class Fixer(Agent):
    """Runs the test, reads the code, mends it, runs the test again."""

    async def step(self, step: Step) -> StepResult:
        if step.number == 1:
            await self.write(step, "calc.py", BROKEN)
            await self.write(step, "test_calc.py", TEST)
            return StepResult(f"the test {await self.test(step)}")
        if step.number == 2:
            code = await self.read(step, "calc.py")
            await self.write(step, "calc.py", code.replace("a - b", "a + b"))
            return StepResult("mended calc.py")
        verdict = await self.test(step)
        return StepResult(f"the test {verdict}", finished=verdict == "passes")

    async def test(self, step: Step) -> str:
        processes = process_pb2_grpc.ProcessServiceStub(self.channel)
        done = await processes.RunCommand(
            process_pb2.RunCommandRequest(
                sandbox_id=step.sandbox_id, run_id=step.run_id, shell="python3 -B -m unittest -q test_calc"
            )
        )
        return "passes" if done.exit_status.exit_code == 0 else "fails"

    async def read(self, step: Step, path: str) -> str:
        files = file_pb2_grpc.FileServiceStub(self.channel)
        answer = await files.ReadFile(file_pb2.ReadFileRequest(sandbox_id=step.sandbox_id, path=path))
        return answer.data.decode()

    async def write(self, step: Step, path: str, text: str) -> None:
        files = file_pb2_grpc.FileServiceStub(self.channel)
        await files.WriteFile(
            file_pb2.WriteFileRequest(sandbox_id=step.sandbox_id, path=path, data=text.encode())
        )


async def main(address: str = "127.0.0.1:7070", image: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        spec = sandbox_pb2.SandboxSpec(image=image)
        async with Fixer(channel, name="fix the test", max_steps=5, sandbox_spec=spec) as agent:
            run = await agent.run("Make the test pass.")
    print(run.summary)
    print(run.outcome)
    return 0 if run.outcome == "FINISHED" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
