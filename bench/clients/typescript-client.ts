/**
 * Times calls of the TypeScript client, alternating with the same calls on the generated clients. Prints JSON:
 * milliseconds.
 *
 * Usage: node typescript-client.ts ADDRESS ROUNDS
 */
import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Berth } from "../../clients/typescript/src/node.ts";
import { ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { Sample } from "../stats.ts";

const WARM_UP = 100;

type Call = () => Promise<unknown>;

/** Times two calls alternately, so that other load on the machine affects both. */
async function inTurn(rounds: number, facade: Call, rawCall: Call): Promise<Sample> {
  const berth: number[] = [];
  const raw: number[] = [];
  for (let round = 0; round < WARM_UP + rounds; round++) {
    const both: [Call, number[]][] = [
      [facade, berth],
      [rawCall, raw],
    ];
    // The order changes, so that neither always comes second.
    for (const [call, sample] of round % 2 === 0 ? both : both.reverse()) {
      const started = performance.now();
      await call();
      if (round >= WARM_UP) sample.push(performance.now() - started);
    }
  }
  return { berth, raw };
}

const [address = "", rounds = ""] = process.argv.slice(2);
const transport = createGrpcTransport({ baseUrl: `http://${address}`, acceptCompression: [] });
const processes = createClient(ProcessService, transport);
const sandboxes = createClient(SandboxService, transport);

await using berth = Berth.connect(address);
await using sandbox = await berth.sandboxes.create();
const { sandboxId } = sandbox;
const command = { case: "shell", value: "true" } as const;

/** With a new request id each, like the client: an id costs time in the service, not in the client. */
async function rawExec(): Promise<void> {
  for await (const _ of processes.exec({ sandboxId, command, requestId: randomUUID() }));
}

const samples = {
  run: await inTurn(
    Number(rounds),
    () => sandbox.run("true"),
    () => processes.runCommand({ sandboxId, command }),
  ),
  exec: await inTurn(Number(rounds), () => sandbox.exec("true").wait(), rawExec),
  refresh: await inTurn(
    Number(rounds),
    () => sandbox.refresh(),
    () => sandboxes.getSandbox({ sandboxId }),
  ),
};
process.stdout.write(JSON.stringify(samples));
// The other connection cannot be closed.
process.exitCode = 0;
setImmediate(() => process.exit());
