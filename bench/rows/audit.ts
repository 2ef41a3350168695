import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { Seal } from "../../src/state/seal.ts";
import type { BenchContext, Figure, Row } from "../row.ts";
import { inTurn, quantile, type Sample } from "../stats.ts";

const TRUE = ["true"];
/** Approximate size of a sandbox's spec with an environment. */
const ROW_BYTES = 1024;
const ROWS_EACH = 1000;

/** What the audit log and the encryption of the database cost. Not part of a run: `--rows audit`. */
export const audit: Row = {
  name: "audit",
  limitSeconds: 240,
  run: async (context) => {
    const dir = mkdtempSync(path.join(tmpdir(), "berth-bench-audit-"));
    try {
      return [
        ...(await auditing(context, path.join(dir, "audit.jsonl"))),
        await sealing(Math.max(10, 50 * context.scale)),
      ];
    } finally {
      rmSync(dir, { recursive: true });
    }
  },
};

async function auditing({ start, scale, progress }: BenchContext, file: string): Promise<Figure[]> {
  const [audited, plain] = [await start(["--audit-log", file]), await start()];
  const [id, plainId] = [await audited.create(), await plain.create()];
  for (let i = 0; i < 100; i++) await Promise.all([audited.exec(id, TRUE), plain.exec(plainId, TRUE)]);
  progress("commands");
  const execs = await inTurn(
    Math.max(100, 1000 * scale),
    () => audited.exec(id, TRUE),
    () => plain.exec(plainId, TRUE),
  );
  progress("creates");
  const creates = await inTurn(
    Math.max(8, 30 * scale),
    () => audited.create(),
    () => plain.create(),
  );
  return [
    figure("Exec of true with an audit log, against without", execs),
    figure("create with an audit log, against without", creates),
  ];
}

/** Encryption cannot be switched off, so this compares encrypted rows with plain copies of them. */
async function sealing(rounds: number): Promise<Figure> {
  const seal = Seal.random();
  const row = Buffer.alloc(ROW_BYTES, "x");
  const repeat = async (act: () => unknown) => {
    for (let i = 0; i < ROWS_EACH; i++) act();
  };
  const sample = await inTurn(
    rounds,
    () => repeat(() => seal.open(seal.bytes(row))),
    () => repeat(() => Buffer.from(Buffer.from(row))),
  );
  return figure("1,000 rows of 1 KiB sealed and opened, against copied", sample);
}

function figure(name: string, { berth, raw }: Sample): Figure {
  const [p50, rawP50] = [quantile(berth, 0.5), quantile(raw, 0.5)];
  return {
    ...{ name, unit: "ms", p50, p99: quantile(berth, 0.99), rawP50, ratio: rawP50 / p50 },
    goal: "for comparison",
  };
}
