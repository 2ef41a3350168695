import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { Flooder } from "../../support/floods/flooder.ts";
import { FLOODS, type FloodName, LONG_DIRECTORY } from "../../support/floods/floods.ts";
import { manyNames } from "../../support/many-names.ts";
import { percentile, timed } from "../../support/measure.ts";
import { processorShare } from "../../support/processor-share.ts";
import { ServeProcess } from "../../support/program.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

const TURNS = 2;
/** Look-ups and commands in each turn. */
const CALLS = 100;
/**
 * How long a call may take however fast it was before, in milliseconds: the longest pause of the event loop that
 * anything may cause. Three times a few milliseconds would be less than one time slice of the kernel's scheduler, and
 * the flooding client, the service and the sandboxes share this machine's CPUs. If others use half of the CPU time, it
 * takes twice as long.
 */
const FLOOR_MS = 100;

/**
 * A flood of sandboxes keeps Docker's daemon and the kernel busy, which are not shared fairly between tenants. The same
 * calls on another service of this machine show how much is due to them; the flooded service may take twice as long.
 */
const MOST_TIMES_ELSEWHERE: Partial<Record<FloodName, number>> = { sandboxes: 2 };

/** Durations of calls, in milliseconds. */
interface Times {
  readonly lookUps: number[];
  readonly commands: number[];
}

describe.each(ENGINES)("on $name", ({ name: engine }) => {
  const file = new TokensFile();
  let service: ServeProcess;
  let clients: Client[] = [];
  let flood = { address: "", token: "", sandboxId: "" };
  interface Caller {
    readonly client: Client;
    readonly sandboxId: string;
  }
  let quiet: Caller;
  let otherService: ServeProcess;
  let elsewhere: Caller;

  beforeAll(async () => {
    const [ann, bob] = [await file.add("ann"), await file.add("bob")];
    service = await ServeProcess.start(["--tokens", file.path, "--engine", engine]);
    const { address } = service;
    clients = [ann, bob].map((token) => clientWith(address, token));
    const [client, noisy] = clients as [Client, Client];
    quiet = { client, sandboxId: (await client.createSandbox()).sandbox_id };
    const { sandbox_id: sandboxId } = await noisy.createSandbox();
    const { path, entries } = LONG_DIRECTORY;
    await noisy.output(sandboxId, `mkdir ${path} && cd ${path} && ${manyNames(entries)}`);
    flood = { address, token: bob, sandboxId };
    otherService = await ServeProcess.start(["--engine", engine]);
    const other = new Client(otherService.address);
    clients.push(other);
    elsewhere = { client: other, sandboxId: (await other.createSandbox()).sandbox_id };
  });
  afterAll(async () => {
    for (const client of clients) client.close();
    await Promise.all([service?.stop(), otherService?.stop()]);
  });

  async function call({ client, sandboxId }: Caller, { lookUps, commands }: Times): Promise<void> {
    for (let i = 0; i < CALLS; i++) {
      lookUps.push(await timed(() => client.getSandbox(sandboxId)));
      commands.push(await timed(() => client.output(sandboxId, "true")));
      // The tenant does not call in a tight loop.
      await sleep(1);
    }
  }

  test.each(Object.keys(FLOODS) as FloodName[])(
    "during a tenant's flood of %s another's calls take at most three times as long",
    {
      timeout: 120_000,
    },
    async (name) => {
      const alone: Times = { lookUps: [], commands: [] };
      const beside: Times = { lookUps: [], commands: [] };
      const other: Times = { lookUps: [], commands: [] };
      const shares: number[] = [];
      let done = 0;
      const callBoth = (times: Times, otherTimes: Times) =>
        Promise.all([call(quiet, times), call(elsewhere, otherTimes)]);
      await callBoth({ lookUps: [], commands: [] }, { lookUps: [], commands: [] });
      for (let turn = 0; turn < TURNS; turn++) {
        shares.push(await processorShare());
        await callBoth(alone, { lookUps: [], commands: [] });
        await using flooder = await Flooder.start({ name, ...flood });
        await callBoth(beside, other);
        done += flooder.count;
      }
      const figures = Object.fromEntries(
        (["lookUps", "commands"] as const).map((kind) => [
          kind,
          {
            alone: percentile(alone[kind], 0.99),
            beside: percentile(beside[kind], 0.99),
            elsewhere: percentile(other[kind], 0.99),
          },
        ]),
      );
      const share = Math.max(...shares);
      const told = JSON.stringify({ engine, name, done, share, ...figures });
      if (process.env.BERTH_TEST_FIGURES) console.log(told);
      for (const { alone, beside, elsewhere } of Object.values(figures)) {
        const bound = Math.max(3 * alone, FLOOR_MS / share, (MOST_TIMES_ELSEWHERE[name] ?? 0) * elsewhere);
        expect(beside, told).toBeLessThanOrEqual(bound);
      }
    },
  );
});
