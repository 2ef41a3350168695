import { Code } from "@connectrpc/connect";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { type Call, type CallObserver, type CallStatus, statusName } from "./call.ts";

/** From the fastest unary call to commands that take minutes, in seconds. */
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Adds a gauge, whose value is read whenever the metrics are. */
export function showGauge(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

/** Adds a gauge with one value per value of a label. They are read whenever the metrics are. */
export function showLabelledGauge(
  registry: Registry,
  name: string,
  help: string,
  label: string,
  read: () => ReadonlyMap<string, number>,
): void {
  new Gauge({
    ...{ name, help, labelNames: [label], registers: [registry] },
    collect() {
      this.reset();
      for (const [word, value] of read()) this.set({ [label]: word }, value);
    },
  });
}

/** Counts of a method's calls. */
interface Tally {
  running: number;
  handled: number;
  readonly ended: Map<CallStatus, number>;
}

/** Counts and times calls. Converts the counts to metrics only when the metrics are read, which is rare. */
export class RpcMetrics implements CallObserver {
  readonly #tallies = new Map<string, Tally>();
  readonly #seconds: Histogram<"method">;

  /** @param methods returns the names of the methods that may be called */
  constructor(registry: Registry, methods: () => readonly string[]) {
    const registers = [registry];
    const tallies = this.#tallies;
    new Counter({
      name: "berth_rpc_total",
      help: "RPCs that ended, by method and gRPC code.",
      labelNames: ["method", "code"],
      registers,
      collect() {
        this.reset();
        // An increase shows only where there was a value before, and the first of these counts as well.
        for (const method of methods()) this.inc({ method, code: statusName(Code.Internal) }, 0);
        for (const [method, { ended }] of tallies) {
          for (const [status, count] of ended) this.inc({ method, code: statusName(status) }, count);
        }
      },
    });
    new Counter({
      name: "berth_rpc_handled_total",
      help: "RPCs that ended and had reached their handler, by method; the others were refused before.",
      labelNames: ["method"],
      registers,
      collect() {
        this.reset();
        for (const [method, { handled }] of tallies) if (handled > 0) this.inc({ method }, handled);
      },
    });
    this.#seconds = new Histogram({
      name: "berth_rpc_duration_seconds",
      help: "From the arrival of an RPC to the end of its response.",
      labelNames: ["method"],
      buckets: LATENCY_BUCKETS,
      registers,
    });
    new Gauge({
      name: "berth_rpc_in_flight",
      help: "RPCs that are running.",
      labelNames: ["method"],
      registers,
      collect() {
        for (const [method, { running }] of tallies) this.set({ method }, running);
      },
    });
  }

  started(call: Call): void {
    this.#tally(labelOf(call)).running++;
  }

  ended(call: Call, status: CallStatus): void {
    const method = labelOf(call);
    const tally = this.#tally(method);
    tally.running--;
    tally.ended.set(status, (tally.ended.get(status) ?? 0) + 1);
    if (call.handlerReached) tally.handled++;
    this.#seconds.observe({ method }, call.ageMs / 1000);
  }

  #tally(method: string): Tally {
    let tally = this.#tallies.get(method);
    if (tally === undefined) {
      tally = { running: 0, handled: 0, ended: new Map() };
      this.#tallies.set(method, tally);
    }
    return tally;
  }
}

/** Only existing methods become labels: names that clients invent would grow without limit. */
function labelOf(call: Call): string {
  return call.method === "" ? "unknown" : call.method;
}
