import { type ChildProcess, execFile, spawn } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { type AttachOptions, Berth } from "../../../clients/typescript/src/node.ts";
import { Store } from "../../../src/store.ts";
import { Client } from "../../support/client.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { startProgram } from "../../support/program.ts";

const root = path.join(import.meta.dirname, "../../..");
/** Writes its lines one by one, each once the file of that name is there; some to stderr too. */
const COMMAND = `for line in one two three four; do
  until [ -e "$line" ]; do sleep 0.02; done
  case $line in one | four) echo "$line" >&2 ;; esac
  echo "$line"
done`;
const FOLLOW = `
import sys
from berth import Berth
with Berth() as berth, berth.sandboxes.get(sys.argv[1]).attach(sys.argv[2]) as process:
    for chunk in process:
        out = sys.stdout if chunk.stream == "stdout" else sys.stderr
        print(chunk.text, end="", flush=True, file=out)
    print(process.status.cause)
`;

let python: string;

// Only against hangs: on first use it creates the environment.
beforeAll(async () => {
  const requirements = path.join(import.meta.dirname, "requirements.txt");
  const env = await promisify(execFile)(path.join(root, "scripts/python-env.sh"), [
    "python-stubs",
    requirements,
  ]);
  python = path.join(env.stdout.trim(), "bin/python");
}, 600_000);

/** What somebody who follows a command has got so far. */
interface Follower {
  stdout: string;
  stderr: string;
  ended: Promise<unknown>;
}

/** A service with a command, and ways to follow it over a link of their own. */
async function startCommand(engine: "docker" | "bubblewrap") {
  const service = await LastingService.start({ BERTH_ENGINE: engine });
  onTestFinished(() => service[Symbol.asyncDispose]());
  const client = new Client(service.address);
  const { sandbox_id: sandboxId } = await client.createSandbox({ working_dir: "/tmp" });
  const { processId: starting } = client.exec(sandboxId, COMMAND, { on_disconnect: "ON_DISCONNECT_DETACH" });
  const processId = await starting;
  client.close();

  // Where nobody listens, clients soon give up, and a busy machine may take longer to start a service.
  const link = await CuttableLink.to(service.address, { isPatient: true });
  onTestFinished(() => link.close());
  const berth = Berth.connect(link.address);
  onTestFinished(() => berth.close());
  const sandbox = await berth.sandboxes.get(sandboxId);
  const attach = (options?: AttachOptions) => sandbox.attach(processId, options);

  const library = (options?: AttachOptions): Follower => {
    const got: Follower = { stdout: "", stderr: "", ended: Promise.resolve() };
    const follow = async () => {
      const process = attach(options);
      for await (const { stream, text } of process) got[stream] += text;
      got.stdout += `${process.status?.cause}\n`;
    };
    got.ended = follow().catch((error: unknown) => {
      got.stderr += String(error);
    });
    return got;
  };
  const program = (child: ChildProcess): Follower => {
    const got: Follower = { stdout: "", stderr: "", ended: new Promise((end) => child.once("close", end)) };
    for (const stream of ["stdout", "stderr"] as const)
      child[stream]?.on("data", (data: Buffer) => {
        got[stream] += data;
      });
    return got;
  };
  const env = { BERTH_ADDRESS: link.address };
  const libraries = { PYTHONPATH: path.join(root, "clients/python/src"), PYTHONDONTWRITEBYTECODE: "1" };
  return {
    service,
    sandboxId,
    link,
    attach,
    library,
    python: () =>
      program(
        spawn(python, ["-c", FOLLOW, sandboxId, processId], {
          env: { ...process.env, ...env, ...libraries },
        }),
      ),
    logs: (...args: string[]) => program(startProgram(["logs", "-f", ...args, processId], { env })),
    /** Lets the command write a line. */
    write: async (line: string) => {
      const now = new Client(service.address);
      await now.output(sandboxId, `touch ${line}`);
      now.close();
    },
    /** Kills the service, which had stored none of the command's output. The next one is not started. */
    killUnstored: async () => {
      await service.kill();
      const store = Store.open(service.dataDir);
      for (const stored of store.processes.unsummarized()) {
        const facts = { ...JSON.parse(stored.facts), written: { stdout: 0, stderr: 0 } };
        store.processes.put({ ...stored, facts: JSON.stringify(facts), transcript: new Uint8Array() });
      }
      store.close();
    },
    /** How many follow the command. */
    following: async () => {
      const response = await fetch(`http://${service.address}/metrics`);
      const running = /^berth_rpc_in_flight\{[^}]*AttachProcess[^}]*\} (\d+)$/m.exec(await response.text());
      return Number(running?.[1] ?? 0);
    },
  };
}

const expectOutput = (followers: readonly Follower[], stdout: string) =>
  expect
    .poll(() => followers.map((follower) => follower.stdout), { timeout: 120_000 })
    .toEqual(followers.map(() => stdout));

test("who follows a command gets all of its later output although the killed service had not stored the earlier", async () => {
  const command = await startCommand("docker");
  const followers = [command.library(), command.python(), command.logs()];

  await command.write("one");
  await expectOutput(followers, "one\n");
  await command.write("two");
  await expectOutput(followers, "one\ntwo\n");
  for (const line of ["three", "four"]) {
    await command.service.kill();
    await command.service.begin();
    await command.write(line);
    if (line === "three") await expectOutput(followers, "one\ntwo\nthree\n");
  }
  await Promise.all(followers.map(({ ended }) => ended));
  const [library, python, logs] = followers.map(({ stdout }) => stdout);
  expect(library).toBe("one\ntwo\nthree\nfour\nEXITED\n");
  expect(python).toBe(library);
  expect(logs).toBe("one\ntwo\nthree\nfour\n");
});

test("who follows it gets the later output also if the connection breaks again before it comes, and with --tail", async () => {
  const command = await startCommand("docker");
  await command.write("one");
  await command.write("two");
  const reader = command.attach();
  const whole = [command.library(), command.python(), command.logs()];
  await expectOutput(whole, "one\ntwo\n");
  const tail = [command.logs("--tail", "4"), command.logs("--tail", "4", "--stdout")];
  await expectOutput(tail, "two\n");
  const fresh = command.logs("--tail", "0");
  const count = whole.length + tail.length + 1;
  await expect.poll(command.following).toBe(count);
  while (reader.stdoutOffset < "one\ntwo\n".length) await reader.read();
  await reader.end();

  await command.killUnstored();
  await command.service.begin();
  await expect.poll(command.following).toBe(count);
  command.link.cut();
  await expect.poll(command.following).toBe(0);
  await command.write("three");
  await command.link.restore();
  await expectOutput(whole, "one\ntwo\nthree\n");
  await expectOutput(tail, "two\nthree\n");

  // Who left before continues as well.
  const { stdoutOffset, stderrOffset, recoveries } = reader;
  expect({ stdoutOffset, recoveries }).toEqual({ stdoutOffset: 8, recoveries: 0 });
  const late = command.library({ stdoutOffset, stderrOffset, recoveries });
  await command.write("four");
  await Promise.all([...whole, ...tail, fresh, late].map(({ ended }) => ended));
  expect(late.stdout).toBe("three\nfour\nEXITED\n");
  for (const { stdout, stderr } of whole) {
    expect(stdout).toMatch(/^one\ntwo\nthree\nfour\n/);
    expect(stderr).toMatch(/^one\n(berth: .*\n)*four\n/);
  }
  expect(fresh.stdout).toBe("three\nfour\n");
  for (const { stdout } of tail) expect(stdout).toBe("two\nthree\nfour\n");
});

test("who follows a command that ends with its service learns that, although the service had not stored its output", async () => {
  const command = await startCommand("bubblewrap");
  await command.write("one");
  const followers = [command.library(), command.python(), command.logs()];
  await expectOutput(followers, "one\n");
  await command.killUnstored();
  await command.service.begin();
  await Promise.all(followers.map(({ ended }) => ended));
  const [library, python, logs] = followers.map(({ stdout }) => stdout);
  expect(library).toBe("one\nENGINE_LOST\n");
  expect(python).toBe(library);
  expect(logs).toBe("one\n");
  expect(followers[2]?.stderr).toContain("its sandbox has ended");
});
