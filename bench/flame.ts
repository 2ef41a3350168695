#!/usr/bin/env node
// Shows where the service spends its time: runs Execs of `true` one by one, and draws the service's profile as a flame
// graph.
//
//   node bench/flame.ts [--execs 10000] [--image NAME] [--svg FILE]
//
// Prints the functions with the most self time.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { BenchService } from "./service.ts";

const { values } = parseArgs({
  options: {
    execs: { type: "string", default: "10000" },
    image: { type: "string", default: "berth/base:latest" },
    svg: { type: "string", default: "flame.svg" },
  },
});
const WIDTH = 1200;
const ROW = 15;
/** Narrower frames are not drawn. */
const MIN_WIDTH = 1;
const CHARACTER = 6.2;
const TOP = 20;

/** The parts of a V8 profile that are used here. */
interface Profile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
    readonly children?: readonly number[];
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** A function on one stack, with the microseconds spent in it and in its callees. */
interface Frame {
  readonly name: string;
  readonly own: number;
  readonly total: number;
  readonly children: readonly Frame[];
}

const directory = mkdtempSync(path.join(tmpdir(), "berth-flame-"));
try {
  const service = await BenchService.start(values.image, [], {
    node: ["--cpu-prof", "--cpu-prof-dir", directory],
  });
  try {
    const id = await service.create();
    for (let i = 0; i < Number(values.execs); i++) await service.exec(id, ["true"]);
  } finally {
    await service.stop();
  }
  const [file] = readdirSync(directory);
  if (file === undefined) throw new Error("the service left no profile");
  const root = treeOf(JSON.parse(readFileSync(path.join(directory, file), "utf8")) as Profile);
  writeFileSync(values.svg, svgOf(root));
  printTop(root, Number(values.execs));
} finally {
  rmSync(directory, { recursive: true, force: true });
}

/** The profile as a tree, without idle time. */
function treeOf({ nodes, samples, timeDeltas }: Profile): Frame {
  const own = new Map<number, number>();
  for (const [i, id] of samples.entries()) own.set(id, (own.get(id) ?? 0) + (timeDeltas[i] ?? 0));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const build = (id: number): Frame => {
    const node = byId.get(id);
    const children = (node?.children ?? []).map(build).filter(({ name }) => name !== "(idle)");
    const mine = own.get(id) ?? 0;
    const total = children.reduce((sum, child) => sum + child.total, mine);
    return { name: nameOf(node?.callFrame), own: mine, total, children };
  };
  return build(nodes[0]?.id ?? 0);
}

function nameOf(frame: Profile["nodes"][number]["callFrame"] | undefined): string {
  if (frame === undefined) return "";
  const file = frame.url.replace(/^file:\/\//, "").replace(path.join(import.meta.dirname, "..", "/"), "");
  return `${frame.functionName || "(anonymous)"}${file ? ` ${file}:${frame.lineNumber + 1}` : ""}`;
}

function svgOf(root: Frame): string {
  const boxes: string[] = [];
  let depths = 0;
  const draw = (frame: Frame, x: number, depth: number): void => {
    const width = (frame.total / root.total) * WIDTH;
    if (width < MIN_WIDTH) return;
    depths = Math.max(depths, depth + 1);
    const percent = ((100 * frame.total) / root.total).toFixed(1);
    const room = Math.floor(width / CHARACTER);
    const label = room > 3 ? escaped(frame.name.slice(0, room)) : "";
    boxes.push(
      `<g><title>${escaped(frame.name)}: ${percent} %</title>` +
        `<rect x="${x.toFixed(1)}" y="${depth * ROW}" width="${width.toFixed(1)}" height="${ROW - 1}" fill="${colourOf(frame.name)}"/>` +
        `<text x="${(x + 2).toFixed(1)}" y="${depth * ROW + 11}">${label}</text></g>`,
    );
    let at = x;
    for (const child of frame.children) {
      draw(child, at, depth + 1);
      at += (child.total / root.total) * WIDTH;
    }
  };
  draw(root, 0, 0);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${depths * ROW}" font-family="monospace" font-size="10">\n<title>The service during ${values.execs} Execs</title>\n` +
    `${boxes.join("\n")}\n</svg>\n`
  );
}

/** Different colours for Berth's code, the libraries', and Node's. */
function colourOf(name: string): string {
  if (/ src\//.test(name)) return "#f4a259";
  return /node_modules/.test(name) ? "#8cb369" : "#c9d6df";
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Prints the functions with the most self time, in microseconds per Exec. */
function printTop(root: Frame, execs: number): void {
  const own = new Map<string, number>();
  const add = (frame: Frame): void => {
    own.set(frame.name, (own.get(frame.name) ?? 0) + frame.own);
    for (const child of frame.children) add(child);
  };
  add(root);
  console.log(`${(root.total / execs).toFixed(0).padStart(6)} µs an Exec, of which:`);
  const most = [...own].sort(([, one], [, other]) => other - one).slice(0, TOP);
  for (const [name, us] of most) console.log(`${(us / execs).toFixed(1).padStart(6)} µs ${name}`);
}
