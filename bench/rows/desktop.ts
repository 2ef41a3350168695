import { setTimeout as sleep } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { ProcessService } from "../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../gen/ts/berth/v1/sandbox_pb.js";
import { SessionService } from "../../gen/ts/berth/v1/session_pb.js";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const WORKER = "bench";
/** Blocks of calls, alternating between Berth and the reference. */
const BLOCKS = 4;
/** Fills a large window with endless text. */
const BUSY =
  "xterm -geometry 200x60+0+0 -e sh -c 'while :; do head -c 4000 /dev/urandom | base64; sleep 0.1; done'";

/** Desktops: screenshots and clicks, compared with ImageMagick and xdotool in the same container; and starts. */
export const desktop: Row = {
  name: "desktop",
  limitSeconds: 240,
  run: async ({ scale, start, progress, oneUser }) => {
    // With bubblewrap, --rootfs or this machine must have the programs that desktops need.
    const service = await start(["--warm-session", "vm=1"]);
    const rounds = Math.max(5, Math.round(25 * scale));
    const figures: Figure[] = [];
    await filled(service);
    figures.push(await starts(service, Math.max(3, Math.round(10 * scale)), progress));
    const vm = await Desktop.create(service, WORKER);
    await vm.tool("launch", { command: "xterm" });
    await vm.tool("launch", { command: "mousepad" });
    await sleep(2_000);
    progress("screenshots of a screen that is still");
    const shot = () => vm.tool("screenshot", {});
    const imported = "import -window root png:/tmp/bench.png";
    figures.push(await paired(vm, "vm:screenshot 1920 × 1080, still", rounds, shot, imported, 60));
    progress("clicks");
    const click = () => vm.tool("click", { x: 1900, y: 1000 });
    figures.push(await paired(vm, "vm:click", rounds * 4, click, "xdotool mousemove 1900 1000 click 1", 10));
    progress("screenshots of a screen that changes");
    await vm.tool("launch", { command: BUSY });
    await sleep(1_000);
    figures.push(await paired(vm, "vm:screenshot 1920 × 1080, changing", rounds, shot, imported, 60));
    progress("another size");
    figures.push(await reinitialized(service, Math.max(3, Math.round(6 * scale))));
    return oneUser ? figures.map((figure) => ({ ...figure, name: `${figure.name} (bubblewrap)` })) : figures;
  },
};

/** A worker's desktop. */
class Desktop {
  readonly #service: BenchService;
  readonly #worker: string;
  readonly #sandboxId: string;

  private constructor(service: BenchService, worker: string, sandboxId: string) {
    this.#service = service;
    this.#worker = worker;
    this.#sandboxId = sandboxId;
  }

  static async create(service: BenchService, worker: string): Promise<Desktop> {
    const { results } = await service.client.unary(SessionService.method.createSessions, {
      workerId: worker,
      resources: [{ resourceType: "vm" }],
    });
    const [result] = results;
    if (result?.session === undefined) throw new Error(result?.failure?.message ?? "there is no result");
    return new Desktop(service, worker, result.session.sandboxId);
  }

  async tool(tool: string, params: JsonObject): Promise<void> {
    const request = { workerId: this.#worker, tool: `vm:${tool}`, params };
    const { code, message } = await this.#service.client.unary(SessionService.method.executeTool, request);
    if (code !== 0) throw new Error(message);
  }

  /** Runs a command repeatedly on the desktop itself. Returns how long each took, in ms. */
  async reference(command: string, rounds: number): Promise<number[]> {
    // The environment of the session's programs, which names the display.
    await this.tool("launch", {
      command: "export -p > /tmp/bench.env.new; mv /tmp/bench.env.new /tmp/bench.env",
    });
    const loop =
      "until [ -e /tmp/bench.env ]; do sleep 0.05; done; . /tmp/bench.env; " +
      `i=0; while [ $i -lt ${rounds} ]; do s=$(date +%s%N); ${command}; e=$(date +%s%N); echo $(((e - s) / 1000)); i=$((i + 1)); done`;
    const { stdout, stderr, exitStatus } = await this.#service.client.unary(
      ProcessService.method.runCommand,
      { sandboxId: this.#sandboxId, command: { case: "shell", value: loop } },
    );
    const values = Buffer.from(stdout)
      .toString()
      .trim()
      .split("\n")
      .map((text) => Number(text) / 1000);
    if (exitStatus?.exitCode !== 0 || values.length !== rounds)
      throw new Error(`${command} failed: ${Buffer.from(stderr).toString()}`);
    return values;
  }

  async destroy(): Promise<void> {
    await this.#service.client.unary(SessionService.method.destroySessions, { workerId: this.#worker });
  }
}

async function paired(
  vm: Desktop,
  name: string,
  rounds: number,
  run: () => Promise<void>,
  command: string,
  goalMs: number,
): Promise<Figure> {
  const ours: number[] = [];
  const reference: number[] = [];
  await run();
  for (let block = 0; block < BLOCKS; block++) {
    for (let i = 0; i < rounds; i++) ours.push(await timed(run));
    reference.push(...(await vm.reference(command, Math.max(2, Math.round(rounds / 4)))));
  }
  const p50 = quantile(ours, 0.5);
  const rawP50 = quantile(reference, 0.5);
  return {
    name,
    unit: "ms",
    p50,
    p99: quantile(ours, 0.99),
    rawP50,
    ratio: rawP50 / p50,
    goal: `p50 ≤ ${goalMs} ms and ≤ 1.3 × of ${command.split(" ")[0]}`,
    reached: p50 <= goalMs && p50 <= 1.3 * rawP50,
  };
}

/** Starts of sessions from the warm pool, up to their first picture. */
async function starts(service: BenchService, rounds: number, progress: (text: string) => void) {
  const values: number[] = [];
  for (let i = 0; i < rounds; i++) {
    await filled(service);
    let vm: Desktop | undefined;
    values.push(
      await timed(async () => {
        vm = await Desktop.create(service, `${WORKER}-${i}`);
        await vm.tool("screenshot", {});
      }),
    );
    await vm?.destroy();
    progress(`session ${i + 1}`);
  }
  return latency("vm session of the warm pool, to its first screenshot", values, 300);
}

async function reinitialized(service: BenchService, rounds: number): Promise<Figure> {
  const values: number[] = [];
  for (let i = 0; i < rounds; i++) {
    await filled(service);
    const size = i % 2 === 0 ? [2560, 1440] : [1280, 800];
    values.push(
      await timed(async () => {
        const request = { workerId: WORKER, resourceType: "vm", config: { screen_size: size } };
        const { failure } = await service.client.unary(SessionService.method.reinitializeSession, request);
        if (failure !== undefined) throw new Error(failure.message);
      }),
    );
  }
  return latency("vm session reinitialized with another size", values, 2_000);
}

/** A latency figure. */
export function latency(name: string, values: readonly number[], goalMs: number): Figure {
  const p50 = quantile(values, 0.5);
  return {
    name,
    unit: "ms",
    p50,
    p99: quantile(values, 0.99),
    goal: `p50 ≤ ${goalMs} ms`,
    reached: p50 <= goalMs,
  };
}

/** Waits until every warm pool is full. */
export async function filled(service: BenchService): Promise<void> {
  for (let i = 0; i < 1200; i++) {
    const { warmPools } = await service.client.unary(SandboxService.method.getStats, {});
    if (warmPools.every(({ ready, target }) => ready === target)) return sleep(300);
    await sleep(50);
  }
  throw new Error("the warm pool does not fill");
}
