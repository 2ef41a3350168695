import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { CallObserver } from "./call.ts";
import { type Call, type CallStatus, statusName } from "./call.ts";

/** From the fastest unary call to commands of minutes, in seconds. */
const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Shows a figure of the service, which is read whenever the metrics are. */
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

/** A gauge whose values are read when somebody asks for them, one for each word of a label. */
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

/** Counts and times calls. */
export class RpcMetrics implements CallObserver {
  readonly #ended: Counter<"method" | "code">;
  readonly #handled: Counter<"method">;
  readonly #seconds: Histogram<"method">;
  readonly #running: Gauge<"method">;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#ended = new Counter({
      name: "berth_rpc_total",
      help: "RPCs that ended, by method and gRPC code.",
      labelNames: ["method", "code"],
      registers,
    });
    this.#handled = new Counter({
      name: "berth_rpc_handled_total",
      help: "RPCs that ended and had reached their handler, by method; the others were refused before.",
      labelNames: ["method"],
      registers,
    });
    this.#seconds = new Histogram({
      name: "berth_rpc_duration_seconds",
      help: "From the arrival of an RPC to the end of its response.",
      labelNames: ["method"],
      buckets: LATENCY_BUCKETS,
      registers,
    });
    this.#running = new Gauge({
      name: "berth_rpc_in_flight",
      help: "RPCs that are running.",
      labelNames: ["method"],
      registers,
    });
  }

  started(call: Call): void {
    this.#running.inc({ method: labelOf(call) });
  }

  ended(call: Call, status: CallStatus): void {
    const method = labelOf(call);
    this.#running.dec({ method });
    this.#ended.inc({ method, code: statusName(status) });
    if (call.handlerReached) this.#handled.inc({ method });
    this.#seconds.observe({ method }, call.ageMs / 1000);
  }
}

/** Only methods that exist become labels: what clients make up would grow without bound. */
function labelOf(call: Call): string {
  return call.method === "" ? "unknown" : call.method;
}
