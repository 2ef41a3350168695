/**
 * A scripted agent that fixes a failing test in a sandbox: no model, the same loop.
 *
 * Usage: npx tsx fix-test.ts [ADDRESS] [IMAGE]      (127.0.0.1:7070; an image with python3)
 * In a checkout: node --conditions=@berth/source clients/typescript/examples/fix-test.ts
 */
import { Agent, type AgentStep, type AgentStepResult, Berth, type Sandbox } from "@berth/client";

const BROKEN = "def add(a, b):\n    return a - b\n";
const TEST = `import unittest
from calc import add

class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
`;

/** Runs the test, reads the code, fixes it, runs the test again. */
class Fixer extends Agent {
  protected async step(step: AgentStep): Promise<AgentStepResult> {
    const { signal } = step;
    const sandbox = await this.berth.sandboxes.get(step.sandboxId, { signal });
    if (step.number === 1) {
      await sandbox.files.write("calc.py", BROKEN, { signal });
      await sandbox.files.write("test_calc.py", TEST, { signal });
      return { result: `the test ${await this.#test(sandbox, step)}` };
    }
    if (step.number === 2) {
      const code = await sandbox.files.readText("calc.py", { signal });
      await sandbox.files.write("calc.py", code.replace("a - b", "a + b"), { signal });
      return { result: "fixed calc.py" };
    }
    const verdict = await this.#test(sandbox, step);
    return { result: `the test ${verdict}`, finished: verdict === "passes" };
  }

  async #test(sandbox: Sandbox, { runId, signal }: AgentStep): Promise<"passes" | "fails"> {
    const { ok } = await sandbox.run("python3 -B -m unittest -q test_calc", { runId, signal });
    return ok ? "passes" : "fails";
  }
}

const [address, image = ""] = process.argv.slice(2);
await using berth = Berth.connect(address);
await using agent = new Fixer(berth, { name: "fix the test", maxSteps: 5, sandbox: { spec: { image } } });
const run = await agent.run("Make the test pass.");
console.log(run.summary);
console.log(run.outcome);
process.exitCode = run.outcome === "FINISHED" ? 0 : 1;
