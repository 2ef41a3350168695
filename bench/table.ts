import type { Figure } from "./row.ts";

const HEADER = ["figure", "unit", "p50", "p99", "against p50", "× better", "goal", "reached"];

/** The figures as a Markdown table, which is also readable on a terminal. */
export function table(figures: readonly Figure[]): string {
  const rows = [
    HEADER,
    ...figures.map(({ name, unit, p50, p99, rawP50, ratio, goal, reached }) => [
      name,
      unit,
      short(p50),
      short(p99),
      short(rawP50),
      short(ratio),
      goal,
      reached === undefined ? "" : reached ? "yes" : "**no**",
    ]),
  ];
  const widths = HEADER.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  const rule = `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`;
  const [header = [], ...body] = rows;
  return [line(header), rule, ...body.map(line)].join("\n");
}

function short(value: number | undefined): string {
  if (value === undefined) return "";
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
