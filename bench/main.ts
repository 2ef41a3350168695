import { writeFileSync } from "node:fs";
import { cpus, release } from "node:os";
import { parseArgs } from "node:util";
import { randomBase32 } from "../src/core/ids.ts";
import { drawLatencies } from "./picture.ts";
import { RawDocker } from "./raw.ts";
import type { Figure, Row } from "./row.ts";
import { createCold, createWarm } from "./rows/create.ts";
import { execLatency, execOutput, execThroughput } from "./rows/exec.ts";
import { files } from "./rows/files.ts";
import { idleMemory } from "./rows/memory.ts";
import { BenchService } from "./service.ts";

// Measures Berth against raw Docker in one run:
//   npm run bench -- [--rows create,exec] [--scale 0.2] [--image NAME] [--json FILE] [--svg FILE]
const ROWS: readonly Row[] = [
  createWarm,
  createCold,
  execLatency,
  execOutput,
  execThroughput,
  files,
  idleMemory,
];

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: ROWS.map(({ name }) => name).join(",") },
    scale: { type: "string", default: "1" },
    image: { type: "string", default: "berth/base:latest" },
    json: { type: "string" },
    svg: { type: "string" },
  },
});

const wanted = values.rows.split(",");
const unknown = wanted.filter((name) => !ROWS.some((row) => row.name === name));
if (unknown.length > 0)
  throw new Error(`no row ${unknown.join(", ")}; there are ${ROWS.map(({ name }) => name).join(", ")}`);

const { image } = values;
const raw = new RawDocker(randomBase32(8), image);
const service = await BenchService.start(image);
const figures: Figure[] = [];
try {
  for (const row of ROWS.filter(({ name }) => wanted.includes(name))) {
    console.error(`measuring ${row.name} …`);
    figures.push(...(await row.run({ image, service, raw, scale: Number(values.scale) })));
  }
} finally {
  await service.stop();
  await raw.removeAll();
}

const round = (value: number | undefined): string => (value === undefined ? "" : value.toPrecision(3));
console.table(
  figures.map((figure) => ({
    figure: figure.name,
    unit: figure.unit,
    p50: round(figure.p50),
    p99: round(figure.p99),
    "raw p50": round(figure.rawP50),
    "× raw": round(figure.ratio),
    goal: figure.goal,
    reached: figure.reached ? "yes" : "NO",
  })),
);
const machine = { cpus: cpus().length, cpu: cpus()[0]?.model, kernel: release(), node: process.version };
if (values.json) writeFileSync(values.json, `${JSON.stringify({ machine, image, figures }, undefined, 2)}\n`);
if (values.svg) writeFileSync(values.svg, drawLatencies(figures));
