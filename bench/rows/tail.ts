import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { quantile, timed } from "../stats.ts";

const POOL = 4;
const EXECS = 1500;
/** How many sandboxes are created and deleted meanwhile, at least. */
const OTHERS = 8;
const TRUE = ["true"];
/** The limit of an Exec's p99, as a multiple of its p50. */
const MOST = 2.5;

/**
 * How much an Exec waits for other work: on an idle service, and while sandboxes are claimed from a pool and deleted.
 */
export const execTail: Row = {
  name: "tail",
  limitSeconds: 300,
  run: async ({ image, scale, start, progress }) => {
    const service = await start(["--warm-pool", `${image}=${POOL}`]);
    const id = await service.create();
    const execs = Math.max(200, Math.round(EXECS * scale));
    await execute(service, id, execs / 4);
    const alone = await execute(service, id, execs);
    progress("alone");
    const churning = churn(service);
    const beside = await execute(service, id, execs);
    while (churning.runs && churning.count < OTHERS) beside.push(...(await execute(service, id, 10)));
    const shell = await shellCommands(execs);
    await churning.stop();
    progress(`while ${churning.count} sandboxes were created and deleted`);
    return [
      { ...figure("Exec of true, nothing else at work", alone), goal: "for comparison" },
      {
        ...figure("Exec of true, while a pool fills and sandboxes are deleted", beside),
        // The CPU time of the machine's daemon affects both quantiles.
        goal: `p99 ≤ ${MOST} × p50`,
        reached: quantile(beside, 0.99) <= MOST * quantile(beside, 0.5),
      },
      { ...figure("true of a shell on the machine itself, meanwhile", shell), goal: "for comparison" },
    ];
  },
};

function figure(name: string, ms: readonly number[]): Omit<Figure, "goal"> {
  return { name, unit: "ms", p50: quantile(ms, 0.5), p99: quantile(ms, 0.99) };
}

async function execute(service: BenchService, id: string, count: number): Promise<number[]> {
  const ms: number[] = [];
  for (let i = 0; i < count; i++) ms.push(await timed(() => service.exec(id, TRUE)));
  return ms;
}

/** How long commands in a shell outside any sandbox take, one after another, in milliseconds. */
async function shellCommands(count: number): Promise<number[]> {
  const script = `for i in $(seq ${count}); do t=$EPOCHREALTIME; /bin/true; echo "$t $EPOCHREALTIME"; done`;
  const { stdout } = await promisify(execFile)("bash", ["-c", script], { env: { LC_ALL: "C" } });
  return stdout
    .trim()
    .split("\n")
    .map((line) => {
      const [from = 0, to = 0] = line.split(" ").map(Number);
      return (to - from) * 1000;
    });
}

/** Claims sandboxes from the pool and deletes them, one after another, until it is stopped. */
function churn(service: BenchService): {
  readonly runs: boolean;
  readonly count: number;
  stop(): Promise<void>;
} {
  let over = false;
  let count = 0;
  const run = async (): Promise<void> => {
    for (; !over; count++) await service.remove(await service.create());
  };
  const done = run();
  // A failure is reported to the caller of stop.
  done.catch(() => {
    over = true;
  });
  return {
    get runs() {
      return !over;
    },
    get count() {
      return count;
    },
    stop: () => {
      over = true;
      return done;
    },
  };
}
