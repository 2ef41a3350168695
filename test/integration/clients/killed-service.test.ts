import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { Client } from "../../support/client.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { startProgram } from "../../support/program.ts";
import { ownLoopback } from "../../support/settings.ts";

const root = path.join(import.meta.dirname, "../../..");
/** Writes its lines one by one, each once the file of that name is there. */
const COMMAND =
  'for line in one two three four; do until [ -e "$line" ]; do sleep 0.02; done; echo "$line"; done';
const FOLLOW = `
import sys
from berth import Berth
with Berth() as berth, berth.sandboxes.get(sys.argv[1]).attach(sys.argv[2]) as process:
    for chunk in process:
        print(chunk.text, end="", flush=True)
`;

let service: LastingService;
let python: string;

// Only against hangs: on first use it creates the environment.
beforeAll(async () => {
  const requirements = path.join(import.meta.dirname, "requirements.txt");
  const env = await promisify(execFile)(path.join(root, "scripts/python-env.sh"), [
    "python-stubs",
    requirements,
  ]);
  python = path.join(env.stdout.trim(), "bin/python");
  service = await LastingService.start();
}, 600_000);
afterAll(() => service?.[Symbol.asyncDispose]());

/**
 * An address whose connections wait while the service is down. Where nobody listens, clients soon give up, and a busy
 * machine may take longer to start a service.
 */
async function waitingAddress(target: string): Promise<string> {
  const { hostname, port } = new URL(`tcp://${target}`);
  const server = net.createServer((near) => {
    near.on("error", () => {});
    const reach = (): void => {
      const far = net.connect(Number(port), hostname);
      let isThere = false;
      far.on("error", () => {});
      far.once("connect", () => {
        isThere = true;
        near.pipe(far).pipe(near);
        near.once("close", () => far.destroy());
      });
      far.once("close", () => {
        if (isThere) near.destroy();
        else if (!near.destroyed) setTimeout(reach, 50);
      });
    };
    reach();
  });
  server.listen(0, ownLoopback());
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { address, port: own } = server.address() as net.AddressInfo;
  return `${address}:${own}`;
}

/** What a program has written so far, and its end. */
function outputOf(child: ChildProcess): { text: string; readonly ended: Promise<unknown> } {
  const output = { text: "", ended: new Promise((resolve) => child.once("close", resolve)) };
  child.stdout?.on("data", (data: Buffer) => {
    output.text += data;
  });
  return output;
}

test("who follows a command gets all of its later output although the killed service had not stored the earlier", async () => {
  const client = new Client(service.address);
  const { sandbox_id: sandboxId } = await client.createSandbox({ working_dir: "/tmp" });
  const { processId: starting } = client.exec(sandboxId, COMMAND, { on_disconnect: "ON_DISCONNECT_DETACH" });
  const processId = await starting;

  const address = await waitingAddress(service.address);
  const berth = Berth.connect(address);
  onTestFinished(() => berth.close());
  const sandbox = await berth.sandboxes.get(sandboxId);
  const library = { text: "", ended: Promise.resolve() };
  const follow = async () => {
    for await (const { text } of sandbox.attach(processId)) library.text += text;
  };
  library.ended = follow().catch((error: unknown) => {
    library.text += String(error);
  });
  const env = {
    ...process.env,
    BERTH_ADDRESS: address,
    PYTHONPATH: path.join(root, "clients/python/src"),
    PYTHONDONTWRITEBYTECODE: "1",
  };
  const followers = [
    library,
    outputOf(
      spawn(python, ["-c", FOLLOW, sandboxId, processId], { env, stdio: ["ignore", "pipe", "inherit"] }),
    ),
    outputOf(startProgram(["logs", "-f", processId], { env: { BERTH_ADDRESS: address } })),
  ];
  const allHave = (text: string) =>
    expect
      .poll(() => followers.map((follower) => follower.text), { timeout: 120_000 })
      .toEqual(followers.map(() => text));

  await client.output(sandboxId, "touch one");
  await allHave("one\n");
  await client.output(sandboxId, "touch two");
  await allHave("one\ntwo\n");
  client.close();
  for (const line of ["three", "four"]) {
    await service.kill();
    await service.begin();
    const again = new Client(service.address);
    await again.output(sandboxId, `touch ${line}`);
    if (line === "three") await allHave("one\ntwo\nthree\n");
    again.close();
  }
  await Promise.all(followers.map(({ ended }) => ended));
  expect(followers.map(({ text }) => text)).toEqual(followers.map(() => "one\ntwo\nthree\nfour\n"));
});
