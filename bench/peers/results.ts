import { quantile } from "../stats.ts";

/** Lines for which a higher value is better. For all others a lower one is. */
const RATES = /MB\/s|a second/;

/** The values of every peer, by line of the table. */
export class Results {
  readonly #values = new Map<string, Map<string, number[]>>();
  readonly #missing: Record<string, string> = {};
  readonly #failures: { readonly peer: string; readonly work: string; readonly why: string }[] = [];

  add(peer: string, lines: Readonly<Record<string, number | readonly number[]>>): void {
    for (const [line, value] of Object.entries(lines)) {
      const byPeer = this.#values.get(line) ?? new Map<string, number[]>();
      this.#values.set(line, byPeer);
      byPeer.set(peer, (byPeer.get(peer) ?? []).concat(value));
    }
  }

  failed(peer: string, work: string, why: string): void {
    this.#failures.push({ peer, work, why });
  }

  /** Records a peer that cannot be measured here. */
  missing(peer: string, why: string): void {
    this.#missing[peer] = why;
  }

  /** Medians as a Markdown table, with the 99th percentile if there are enough values. The best are bold. */
  table(peers: readonly string[]): string {
    const there = peers.filter((peer) => !(peer in this.#missing));
    const rows = [...this.#values].flatMap(([line, byPeer]) => {
      const row = (name: string, q: number): string[] => {
        const values = there.map((peer) => byPeer.get(peer)).map((all) => all && quantile(all, q));
        const known = values.filter((value) => value !== undefined);
        const best = RATES.test(line) ? Math.max(...known) : Math.min(...known);
        const cells = values.map((value) => {
          if (value === undefined) return "–";
          return value === best ? `**${short(value)}**` : short(value);
        });
        return [name, ...cells];
      };
      const enough = [...byPeer.values()].some((all) => all.length >= 100);
      return enough ? [row(`${line}, p50`, 0.5), row(`${line}, p99`, 0.99)] : [row(line, 0.5)];
    });
    const header = ["", ...there];
    const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
    const notes = [
      ...Object.entries(this.#missing).map(([peer, why]) => `Not measured: ${peer}: ${why}.`),
      ...this.#failures.map(({ peer, work, why }) => `${peer}, ${work}: ${why}.`),
    ];
    const lines = [line(header), line(header.map(() => "---")), ...rows.map(line)];
    return [lines.join("\n"), ...notes].join("\n\n");
  }

  get json() {
    const lines = Object.fromEntries(
      [...this.#values].map(([line, byPeer]) => [line, Object.fromEntries(byPeer)]),
    );
    return { lines, missing: this.#missing, failures: this.#failures };
  }
}

function short(value: number): string {
  if (Number.isInteger(value)) return String(value);
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
