import type { Figure } from "./row.ts";

const WIDTH = 760;
const LEFT = 190;
const ROW_HEIGHT = 64;
const TOP = 46;
const COLORS = { berth: "#1b7f79", raw: "#b4553c" };

/**
 * Draws the distribution of latencies: a dot for each measured call on a logarithmic scale, and a bar at the median.
 */
export function drawLatencies(figures: readonly Figure[]): string {
  const shown = figures.filter(({ unit, values }) => unit === "ms" && values);
  const all = shown.flatMap(({ values }) => [...(values?.berth ?? []), ...(values?.raw ?? [])]);
  const least = Math.floor(Math.log10(Math.min(...all)));
  const most = Math.ceil(Math.log10(Math.max(...all)));
  const x = (ms: number): number => LEFT + ((Math.log10(ms) - least) / (most - least)) * (WIDTH - LEFT - 20);
  const height = TOP + shown.length * ROW_HEIGHT + 30;
  const parts: string[] = [];
  for (let power = least; power <= most; power++) {
    const at = x(10 ** power);
    parts.push(`<line x1="${at}" y1="${TOP - 8}" x2="${at}" y2="${height - 24}" stroke="#ddd"/>`);
    parts.push(`<text x="${at}" y="${height - 8}" text-anchor="middle">${10 ** power} ms</text>`);
  }
  shown.forEach(({ name, values }, index) => {
    const y = TOP + index * ROW_HEIGHT;
    parts.push(`<text x="10" y="${y + 26}">${name}</text>`);
    for (const [lane, side] of (["berth", "raw"] as const).entries()) {
      const middle = y + 14 + lane * 22;
      const sorted = (values?.[side] ?? []).toSorted((a, b) => a - b);
      // A few hundred dots show the shape, and keep the file small.
      const step = Math.max(1, Math.floor(sorted.length / 200));
      for (let i = 0; i < sorted.length; i += step) {
        const jitter = ((i * 7919) % 13) - 6;
        const at = x(sorted[i] ?? 1).toFixed(1);
        parts.push(
          `<circle cx="${at}" cy="${middle + jitter * 0.6}" r="2" fill="${COLORS[side]}" fill-opacity="0.35"/>`,
        );
      }
      const median = x(sorted[Math.floor(sorted.length / 2)] ?? 1).toFixed(1);
      parts.push(
        `<line x1="${median}" y1="${middle - 8}" x2="${median}" y2="${middle + 8}" stroke="${COLORS[side]}" stroke-width="3"/>`,
      );
    }
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12" fill="#333">
<rect width="100%" height="100%" fill="#fff"/>
<text x="10" y="20" font-size="14">Latency of single calls, logarithmic</text>
<text x="${WIDTH - 20}" y="20" text-anchor="end"><tspan fill="${COLORS.berth}">● Berth, over gRPC</tspan> <tspan fill="${COLORS.raw}">● raw Docker</tspan></text>
${parts.join("\n")}
</svg>
`;
}
