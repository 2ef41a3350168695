"""A scripted agent that fixes a failing test in a sandbox: no model, the same loop.

Usage: python fix_test.py [ADDRESS] [IMAGE]      (127.0.0.1:7070; an image with python3)
"""

import asyncio
import sys

from berth import Agent, AsyncBerth, SandboxSpec, Step, StepResult

BROKEN = "def add(a, b):\n    return a - b\n"
TEST = """import unittest
from calc import add

class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""


class Fixer(Agent):
    """Runs the test, reads the code, fixes it, runs the test again."""

    async def step(self, step: Step) -> StepResult:
        sandbox = await self.berth.sandboxes.get(step.sandbox_id)
        if step.number == 1:
            await sandbox.files.write("calc.py", BROKEN)
            await sandbox.files.write("test_calc.py", TEST)
        elif step.number == 2:
            code = await sandbox.files.read_text("calc.py")
            await sandbox.files.write("calc.py", code.replace("a - b", "a + b"))
            return StepResult("fixed calc.py")
        tested = await sandbox.run("python3 -B -m unittest -q test_calc", run_id=step.run_id)
        return StepResult(f"the test {'passes' if tested.ok else 'fails'}", finished=tested.ok)


async def main(address: str | None = None, image: str = "") -> int:
    """Runs the agent and prints the result."""
    async with AsyncBerth(address) as berth:
        spec = SandboxSpec(image=image)
        async with Fixer(berth, name="fix the test", max_steps=5, sandbox_spec=spec) as agent:
            run = await agent.run("Make the test pass.")
    print(run.summary)
    print(run.outcome)
    return 0 if run.outcome == "FINISHED" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
