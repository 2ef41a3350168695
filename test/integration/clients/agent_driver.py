"""Agents that read their steps from stdin as JSON, one per line, and report on stdout.

Run by agents.test.ts. Each line names its agent, as {"agent": 0}. The first line of an agent configures it. Each later
one is {"do": "run", "steps": [...]} with steps of {result, times, finished, says, role, raise, sleep, outlast},
{"do": "reset"}, {"do": "state"}, {"do": "cancel"} or {"do": "close"}. With "meanwhile", it is done during the one before.
"""

import asyncio
import json
import sys

from berth import Agent, AsyncBerth, Message, SandboxSpec, StepResult


class Scripted(Agent):
    place: int
    steps: list = []
    seen: list = []

    async def step(self, step):
        self.seen.append({"number": step.number, "prompt": step.prompt, "sandboxId": step.sandbox_id})
        tell({"agent": self.place, "step": step.number, "runId": step.run_id, "sandboxId": step.sandbox_id})
        script = self.steps[min(step.number, len(self.steps)) - 1]
        await asyncio.sleep(script.get("sleep", 0))
        while script.get("outlast") and (await self.berth.runs.get(step.run_id)).state == "RUNNING":
            await asyncio.sleep(0.02)
        if script.get("outlast"):
            self.seen.append({"outlasted": step.number})
        if "raise" in script:
            raise RuntimeError(script["raise"])
        says, role, times = script.get("says"), script.get("role", "ASSISTANT"), script.get("times", 1)
        return StepResult(
            script.get("result", "") * times,
            finished=script.get("finished", False),
            messages=None if says is None else [Message(role, text * times) for text in says],
        )


def tell(value):
    print(json.dumps(value), flush=True)


async def perform(agent, act):
    if act["do"] == "run":
        agent.steps, agent.seen = act["steps"], []
        run = await agent.run(act.get("request", ""))
        return {
            "state": run.state.value,
            "outcome": run.outcome,
            "message": run.message,
            "summary": run.summary,
            "seen": agent.seen,
        }
    if act["do"] == "reset":
        await agent.reset()
    if act["do"] == "cancel":
        await agent.cancel()
    if act["do"] == "close":
        await agent.close()
    return {}


async def answer(agent, act):
    try:
        done = await perform(agent, act)
    except Exception as error:
        done = {"raised": str(error), "type": type(error).__name__}
    report = {"agent": agent.place, "done": done, "agentState": agent.state.value}
    tell({**report, "currentStep": agent.current_step, "runId": agent.run_id})


async def serve(setup, acts):
    place = setup.pop("agent")
    sandbox = SandboxSpec() if setup.pop("sandbox", False) else None
    async with AsyncBerth(setup.pop("address")) as berth, asyncio.TaskGroup() as tasks:
        agent = Scripted(berth, sandbox_spec=sandbox, **setup)
        agent.place = place
        last = tasks.create_task(asyncio.sleep(0))
        while act := await acts.get():
            if not act.get("meanwhile"):
                await last
            last = tasks.create_task(answer(agent, act))


async def main():
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    agents = {}
    async with asyncio.TaskGroup() as tasks:
        async for line in lines:
            act = json.loads(line)
            if act["agent"] in agents:
                agents[act["agent"]].put_nowait(act)
            else:
                agents[act["agent"]] = acts = asyncio.Queue()
                tasks.create_task(serve(act, acts))
        for acts in agents.values():
            acts.put_nowait(None)


asyncio.run(main())
