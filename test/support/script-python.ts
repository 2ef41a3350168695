import type { Client } from "./client.ts";
import type { RawResult } from "./docker.ts";
import { ScriptRunner } from "./script-runner.ts";
import type { ProcessEvent } from "./wire.ts";

/** Forks for each script, after it has imported what takes longest. */
const PROGRAM = `
import json, os, socket, sys, urllib.error, urllib.request
for line in sys.stdin:
    mark, script, args = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        sys.argv[1:] = args
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(1, f"{mark} {code}\\n".encode())
    os.write(2, f"{mark}\\n".encode())
`;

/** A Python interpreter in a sandbox that runs each script in a fork. A new interpreter takes ten times as long. */
export class ScriptPython extends ScriptRunner {
  static readonly argv = ["python3", "-c", PROGRAM];

  /** Starts one in a sandbox. */
  static async start(client: Client, sandboxId: string): Promise<ScriptPython> {
    const execution = client.exec(sandboxId, ScriptPython.argv, { keep_stdin_open: true });
    const process_id = await execution.processId;
    let offset = 0;
    const python = new ScriptPython((data) => {
      const request = { process_id, offset, data };
      offset += data.length;
      client.call("ProcessService/WriteStdin", request).catch(() => python.end());
    });
    execution.call.on("data", ({ output }: ProcessEvent) => {
      if (output) python.take(output.stream === "OUTPUT_STREAM_STDOUT" ? "stdout" : "stderr", output.data);
    });
    execution.result.catch(() => {}).finally(() => python.end());
    return python;
  }

  /** @param args become `sys.argv[1:]`. */
  run(script: string, ...args: string[]): Promise<RawResult> {
    return this.runMarked(script, (mark) => `${JSON.stringify([mark, script, args])}\n`);
  }
}
