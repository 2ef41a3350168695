/**
 * A scripted agent that fixes a failing test in a sandbox: no model, the same loop.
 *
 * Usage: node examples/fix-test.ts [ADDRESS] [IMAGE]      (127.0.0.1:7070; an image with python3)
 */
import { createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { FileService } from "../gen/ts/berth/v1/file_pb.js";
import { ProcessService } from "../gen/ts/berth/v1/process_pb.js";
import { RunService } from "../gen/ts/berth/v1/run_pb.js";
import { Agent, type AgentStep, type AgentStepResult } from "../src/client/agent.ts";

const BROKEN = "def add(a, b):\n    return a - b\n";
const TEST = `import unittest
from calc import add

class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
`;

/** Runs the test, reads the code, mends it, runs the test again. */
class Fixer extends Agent {
  readonly #files;
  readonly #processes;

  constructor(transport: Transport, image: string) {
    super(createClient(RunService, transport), {
      name: "fix the test",
      maxSteps: 5,
      sandbox: { spec: { image } },
    });
    this.#files = createClient(FileService, transport);
    this.#processes = createClient(ProcessService, transport);
  }

  protected async step(step: AgentStep): Promise<AgentStepResult> {
    if (step.number === 1) {
      await this.#write(step, "calc.py", BROKEN);
      await this.#write(step, "test_calc.py", TEST);
      return { result: `the test ${await this.#test(step)}` };
    }
    if (step.number === 2) {
      const code = await this.#read(step, "calc.py");
      await this.#write(step, "calc.py", code.replace("a - b", "a + b"));
      return { result: "mended calc.py" };
    }
    const verdict = await this.#test(step);
    return { result: `the test ${verdict}`, finished: verdict === "passes" };
  }

  async #test({ sandboxId, runId, signal }: AgentStep): Promise<"passes" | "fails"> {
    const command = { case: "shell", value: "python3 -B -m unittest -q test_calc" } as const;
    const { exitStatus } = await this.#processes.runCommand({ sandboxId, runId, command }, { signal });
    return exitStatus?.exitCode === 0 ? "passes" : "fails";
  }

  async #read({ sandboxId, signal }: AgentStep, path: string): Promise<string> {
    const { data } = await this.#files.readFile({ sandboxId, path }, { signal });
    return Buffer.from(data).toString();
  }

  async #write({ sandboxId, signal }: AgentStep, path: string, text: string): Promise<void> {
    await this.#files.writeFile({ sandboxId, path, data: new TextEncoder().encode(text) }, { signal });
  }
}

const [address = "127.0.0.1:7070", image = ""] = process.argv.slice(2);
await using agent = new Fixer(createGrpcTransport({ baseUrl: `http://${address}` }), image);
const run = await agent.run("Make the test pass.");
console.log(run.summary);
console.log(run.outcome);
process.exitCode = run.outcome === "FINISHED" ? 0 : 1;
