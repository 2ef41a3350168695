import { readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import {
  constants,
  monitorEventLoopDelay,
  type NodeGCPerformanceDetail,
  PerformanceObserver,
} from "node:perf_hooks";
import { setImmediate as nextTurn } from "node:timers/promises";
import { getHeapStatistics } from "node:v8";
import { Counter, Gauge, Histogram, type Registry } from "prom-client";

/** How often the delay of the event loop is measured, in milliseconds. */
const LAG_RESOLUTION_MS = 10;
const GC_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1];
const GC_KINDS: Readonly<Record<number, string>> = {
  [constants.NODE_PERFORMANCE_GC_MAJOR]: "major",
  [constants.NODE_PERFORMANCE_GC_MINOR]: "minor",
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: "incremental",
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: "weakcb",
};

/**
 * Metrics of the service's process, with the names that dashboards for Node expect: memory, CPU, descriptors, event
 * loop, garbage collection. Unlike prom-client's own collectors they can be stopped, so a process may run several
 * services.
 */
export class ProcessMetrics {
  readonly #lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  readonly #collections: PerformanceObserver;

  /** Adds the metrics to a registry, and collects until {@link stop}. */
  constructor(registry: Registry) {
    const registers = [registry];
    const gauge = (name: string, help: string, read: () => number | Promise<number>): void => {
      new Gauge({
        ...{ name, help, registers },
        async collect() {
          try {
            this.set(await read());
          } catch {
            // The last value stays: to read it opens a file, and no more files may be open.
          }
        },
      });
    };
    gauge("process_start_time_seconds", "When the process was started, since the Unix epoch.", () =>
      Math.round(performance.timeOrigin / 1000),
    );
    gauge("process_resident_memory_bytes", "Resident memory.", () => process.memoryUsage.rss());
    const mostDescriptors = mostOpenDescriptors();
    gauge("process_open_fds", "Open file descriptors.", () => openDescriptors(mostDescriptors));
    gauge("process_max_fds", "Most file descriptors that may be open.", () => mostDescriptors);
    gauge(
      "nodejs_heap_size_total_bytes",
      "Size of the JavaScript heap.",
      () => getHeapStatistics().total_heap_size,
    );
    gauge(
      "nodejs_heap_size_used_bytes",
      "Used part of the JavaScript heap.",
      () => getHeapStatistics().used_heap_size,
    );
    gauge(
      "nodejs_external_memory_bytes",
      "Memory of buffers and the like.",
      () => getHeapStatistics().external_memory,
    );
    gauge("nodejs_eventloop_lag_seconds", "How long a turn of the event loop takes now.", currentLag);
    this.#addLag(registers);
    addCpu(registers);
    this.#collections = observeCollections(registers);
    this.#lag.enable();
  }

  /** Stops collecting. */
  stop(): void {
    this.#lag.disable();
    this.#collections.disconnect();
  }

  /** Adds the delay of the event loop since the metrics were last read. */
  #addLag(registers: Registry[]): void {
    const lag = this.#lag;
    const seconds = (ns: number): number =>
      Number.isFinite(ns) ? Math.max(0, ns / 1e9 - LAG_RESOLUTION_MS / 1000) : 0;
    const gauge = (kind: string, collect?: (this: Gauge) => void): Gauge =>
      new Gauge({
        name: `nodejs_eventloop_lag_${kind}_seconds`,
        help: `Lag of the event loop since the last scrape: ${kind}.`,
        registers,
        ...(collect && { collect }),
      });
    // A scrape reads gauges in the order in which they are added, so the first one sets all of them.
    gauge("mean", function () {
      this.set(seconds(lag.mean));
      p50.set(seconds(lag.percentile(50)));
      p99.set(seconds(lag.percentile(99)));
      max.set(lag.count === 0 ? 0 : seconds(lag.max));
      lag.reset();
    });
    const [p50, p99, max] = [gauge("p50"), gauge("p99"), gauge("max")];
  }
}

function addCpu(registers: Registry[]): void {
  let counted = { user: 0, system: 0 };
  const system = new Counter({
    name: "process_cpu_system_seconds_total",
    help: "CPU time in the kernel.",
    registers,
  });
  const user = new Counter({
    name: "process_cpu_user_seconds_total",
    help: "CPU time outside the kernel.",
    registers,
  });
  new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time in total.",
    registers,
    collect() {
      const used = process.cpuUsage();
      user.inc((used.user - counted.user) / 1e6);
      system.inc((used.system - counted.system) / 1e6);
      this.inc((used.user + used.system - counted.user - counted.system) / 1e6);
      counted = used;
    },
  });
}

function observeCollections(registers: Registry[]): PerformanceObserver {
  const durations = new Histogram({
    name: "nodejs_gc_duration_seconds",
    help: "Pauses for garbage collection, by kind.",
    labelNames: ["kind"],
    buckets: GC_BUCKETS,
    registers,
  });
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { detail } = entry as unknown as { readonly detail: NodeGCPerformanceDetail };
      durations.observe({ kind: GC_KINDS[detail.kind ?? -1] ?? "other" }, entry.duration / 1000);
    }
  });
  observer.observe({ entryTypes: ["gc"] });
  return observer;
}

async function currentLag(): Promise<number> {
  const begin = performance.now();
  await nextTurn();
  return (performance.now() - begin) / 1000;
}

/** One of them is the directory being read. */
async function openDescriptors(most: number): Promise<number> {
  try {
    return (await readdir("/proc/self/fd")).length - 1;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EMFILE") return most;
    throw error;
  }
}

function mostOpenDescriptors(): number {
  const most = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"));
  return most === null ? Number.POSITIVE_INFINITY : Number(most[1]);
}
