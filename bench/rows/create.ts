import type { Figure, Row } from "../row.ts";
import { inTurn, quantile, type Sample, timed } from "../stats.ts";

const TRUE = ["true"];
const MAX_FIRST_EXEC_MS = 8;

/** What the start and end of a sandbox cost, compared with Docker's create, start and remove. */
export const createCold: Row = {
  name: "create",
  limitSeconds: 300,
  run: async ({ start, raw, scale, progress }) => {
    const service = await start();
    const rounds = Math.max(5, Math.round(20 * scale));
    const created: string[] = [];
    const created2: string[] = [];
    const containers: Awaited<ReturnType<typeof raw.start>>[] = [];
    progress("creates");
    const create = await inTurn(
      rounds,
      async () => created.push(await service.create()),
      async () => containers.push(await raw.start()),
    );
    progress("creates with a command");
    const execs: number[] = [];
    const first = await inTurn(
      rounds,
      async () => {
        const id = await service.create();
        created2.push(id);
        execs.push(await timed(() => service.exec(id, TRUE)));
      },
      async () => containers.push(await raw.start()),
    );
    progress("removes");
    const remove = { berth: [] as number[], raw: [] as number[] };
    for (const id of created) {
      remove.berth.push(await timed(() => service.remove(id)));
      remove.raw.push(await timed(async () => containers.pop()?.remove({ force: true })));
    }
    for (const id of created2) await service.remove(id);
    await raw.removeAll();
    const firstExec = quantile(execs, 0.5);
    return [
      figure("create, cold", 1.1, create),
      figure("create, cold, to the exit code of a first command, against create alone", 1.03, first),
      {
        ...{ name: "Exec of true in a sandbox just made", unit: "ms" },
        ...{ p50: firstExec, p99: quantile(execs, 0.99) },
        goal: `p50 ≤ ${MAX_FIRST_EXEC_MS} ms`,
        reached: firstExec <= MAX_FIRST_EXEC_MS,
      },
      figure("remove", 1.1, remove),
    ];
  },
};

/** @param most the limit, as a multiple of raw Docker's time. */
function figure(name: string, most: number, values: Sample): Figure {
  const p50 = quantile(values.berth, 0.5);
  const rawP50 = quantile(values.raw, 0.5);
  return {
    ...{ name, unit: "ms", p50, p99: quantile(values.berth, 0.99), rawP50, ratio: rawP50 / p50 },
    ...{ goal: `≤ ${most.toFixed(2)} × raw`, reached: p50 <= most * rawP50, values },
  };
}
