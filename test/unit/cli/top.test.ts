import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { describe, expect, type TestContext, test } from "vitest";
import { ErrorDetailSchema, ErrorReason } from "../../../gen/ts/berth/v1/error_pb.js";
import {
  type ResourceUsageSchema,
  SandboxService,
  SandboxState,
} from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { runHere } from "../../support/program-here.ts";

type Usage = MessageInitShape<typeof ResourceUsageSchema>;
type Measure = (call: number) => Usage | ErrorReason;

const MIB = 2 ** 20;

/** A usage at a time of the service. */
function usage(atMs: number, cpuMs: number, mib: number, limits: Partial<typeof LIMITS> = {}): Usage {
  return {
    memoryBytes: BigInt(mib * MIB),
    cpuTime: { seconds: BigInt(Math.trunc(cpuMs / 1000)), nanos: (cpuMs % 1000) * 1e6 },
    processes: 3,
    measureTime: { seconds: BigInt(1_000 + Math.trunc(atMs / 1000)), nanos: (atMs % 1000) * 1e6 },
    ...limits,
  };
}

const LIMITS = { memoryLimitBytes: BigInt(100 * MIB), cpuLimitMillis: 1000, processLimit: 512 };

function failure(reason: ErrorReason, sandboxId: string): ConnectError {
  const code = reason === ErrorReason.SANDBOX_NOT_FOUND ? Code.NotFound : Code.FailedPrecondition;
  const detail = { desc: ErrorDetailSchema, value: { reason } };
  return new ConnectError(`The sandbox ${sandboxId} is refused.`, code, undefined, [detail]);
}

/** A service with these sandboxes, over a real connection. Returns how to run the program against it. */
async function serviceWith(
  { onTestFinished }: Pick<TestContext, "onTestFinished">,
  measures: Readonly<Record<string, Measure>>,
  paused: readonly string[] = [],
) {
  const calls = new Map<string, number>();
  const generations = new Set<bigint>();
  const sandboxOf = (sandboxId: string) => ({
    sandboxId,
    generation: 2n,
    state: paused.includes(sandboxId) ? SandboxState.PAUSED : SandboxState.RUNNING,
  });
  const queries: unknown[] = [];
  const handler = connectNodeAdapter({
    routes: (router) =>
      router.service(SandboxService, {
        listSandboxes: ({ labelSelector, states }) => {
          queries.push({ labelSelector, states });
          return { sandboxes: Object.keys(measures).map(sandboxOf) };
        },
        getSandbox: ({ sandboxId }) => {
          if (measures[sandboxId] === undefined) throw failure(ErrorReason.SANDBOX_NOT_FOUND, sandboxId);
          return { sandbox: sandboxOf(sandboxId) };
        },
        getSandboxUsage: ({ sandboxId, generation }) => {
          generations.add(generation);
          const call = calls.get(sandboxId) ?? 0;
          calls.set(sandboxId, call + 1);
          const answer = measures[sandboxId]?.(call) ?? ErrorReason.SANDBOX_NOT_FOUND;
          if (typeof answer === "number") throw failure(answer, sandboxId);
          return { usage: answer };
        },
      }),
  });
  const server = http.createServer(handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const top = (args: string[], isTTY = false) =>
    runHere(["top", ...args], { isTTY, env: { BERTH_ADDRESS: address } });
  return { top, queries, generations };
}

const USUAL: Readonly<Record<string, Measure>> = {
  idle: (call) => usage(call * 1_000, 70, 5, LIMITS),
  busy: (call) => usage(call * 1_250, 100 + call * 1_000, 95, LIMITS),
  frozen: (call) => usage(call * 1_000, 5_000, 20),
  ended: (call) => (call === 0 ? usage(0, 0, 1, LIMITS) : ErrorReason.SANDBOX_NOT_RUNNING),
  vanished: () => ErrorReason.SANDBOX_NOT_FOUND,
};

// Each takes the second between two measurements.
describe.concurrent("top", () => {
  test("lists what sandboxes use, highest CPU first, without those that went away", async (context) => {
    const { top, queries, generations } = await serviceWith(context, USUAL, ["frozen"]);
    expect(await top([])).toEqual({
      code: 0,
      stdout: `ID      STATE    CPU    MEMORY            PIDS
busy    running  80.0%  95 MiB / 100 MiB  3 / 512
frozen  paused   0.0%   20 MiB            3
idle    running  0.0%   5 MiB / 100 MiB   3 / 512
`,
      stderr: "",
    });
    expect([...generations]).toEqual([2n]);
    const states = [SandboxState.RUNNING, SandboxState.PAUSED];
    expect(queries).toEqual([{ labelSelector: {}, states }]);
    expect((await top(["-q", "-l", "team=red"])).stdout.split("\n").sort()).toContain("busy");
    expect(queries.at(-1)).toEqual({ labelSelector: { team: "red" }, states });
  });

  test("writes JSON and templates", async (context) => {
    const { top } = await serviceWith(context, {
      busy: USUAL.busy as Measure,
      frozen: USUAL.frozen as Measure,
    });
    const busy = {
      sandboxId: "busy",
      state: "SANDBOX_STATE_RUNNING",
      cpuPercent: 80,
      memoryBytes: "99614720",
      memoryLimitBytes: "104857600",
      cpuTime: "1.100s",
      cpuLimitMillis: 1000,
      processes: 3,
      processLimit: 512,
      measureTime: "1970-01-01T00:16:41.250Z",
    };
    const { stdout } = await top(["--json", "busy"]);
    expect(JSON.parse(stdout)).toEqual({ sandboxes: [busy] });
  });

  test("a template reads the figures", async (context) => {
    const { top } = await serviceWith(context, { busy: USUAL.busy as Measure });
    const format = "{{.ID}} {{.CPU}} {{.cpuPercent}} {{.memoryBytes}} {{.processes}}";
    expect((await top(["--format", format])).stdout).toBe("busy 80.0% 80 99614720 3\n");
  });

  test("memory that is nearly full is red on a terminal", async (context) => {
    const { top } = await serviceWith(context, { busy: USUAL.busy as Measure, idle: USUAL.idle as Measure });
    const { stdout } = await top([], true);
    expect(stdout).toContain("\x1b[31m95 MiB / 100 MiB\x1b[39m");
    expect(stdout).toContain("  5 MiB / 100 MiB");
  });

  test("a sandbox that is named and cannot be measured is a failure, and the others are shown", async (context) => {
    const { top } = await serviceWith(context, USUAL);
    const { code, stdout, stderr } = await top(["-q", "unknown", "idle", "vanished", "idle"]);
    expect([code, stdout]).toEqual([1, "idle\n"]);
    expect(stderr).toBe(
      ["unknown", "vanished"]
        .map((id) => `berth: The sandbox ${id} is refused.\nTo list them: berth ls --all\n`)
        .join(""),
    );
  });

  test("a failure of one sandbox does not hide the others", async (context) => {
    const lost = () => ErrorReason.TOO_MANY_OPERATIONS;
    const { top } = await serviceWith(context, { idle: USUAL.idle as Measure, full: lost });
    expect(await top(["-q"])).toMatchObject({
      code: 1,
      stdout: "idle\n",
      stderr: expect.stringContaining("The sandbox full is refused."),
    });
  });

  test("without sandboxes there are only headings, at once", async (context) => {
    const { top } = await serviceWith(context, {});
    expect(await top([])).toEqual({ code: 0, stdout: "ID  STATE  CPU  MEMORY  PIDS\n", stderr: "" });
  });

  test("a clock that was set back leaves the CPU share out", async (context) => {
    const { top } = await serviceWith(context, { odd: (call) => usage(9_000 - call * 5_000, call * 100, 1) });
    expect((await top(["--format", "{{.CPU}}|{{.cpuPercent}}"])).stdout).toBe("-|\n");
  });
});
