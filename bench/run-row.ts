import { randomBase32 } from "../src/base/ids.ts";
import { RawDocker } from "./raw.ts";
import type { Figure, Row } from "./row.ts";
import { BenchService } from "./service.ts";

/** The settings of all rows in a run. */
export interface RunSettings {
  readonly image: string;
  readonly scale: number;
  /** Options of `berth serve` for every service. */
  readonly serve: readonly string[];
  /** Aborted when the whole run should end. */
  readonly signal: AbortSignal;
}

/**
 * Runs one row within its time limit, and removes what it started.
 * @throws the row's error, or that it exceeded its time
 */
export async function runRow(row: Row, settings: RunSettings): Promise<Figure[]> {
  const { image, scale, serve, signal } = settings;
  const seconds = row.limitSeconds * Math.max(0.5, scale);
  const services: Promise<BenchService>[] = [];
  const raw = new RawDocker(randomBase32(8), image);
  const started = performance.now();
  const progress = (text: string): void => {
    console.error(`${row.name}, ${((performance.now() - started) / 1000).toFixed(0)} s: ${text}`);
  };
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => over.reject(new Error(`exceeded its limit of ${seconds} s`)),
    seconds * 1000,
  );
  const onAbort = (): void => over.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const start = (options: readonly string[] = [], installed = false): Promise<BenchService> => {
    const service = BenchService.start(image, [...serve, ...options], { installed });
    services.push(service);
    return service;
  };
  progress("starts");
  const running = row.run({
    ...{ image, raw, scale, start, progress },
    oneUser: serve.includes("bubblewrap"),
  });
  // A failure after its time is over has already been reported.
  running.catch(() => {});
  try {
    return await Promise.race([running, over.promise]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
    const stopped = await Promise.allSettled(services);
    await Promise.all(stopped.map((service) => service.status === "fulfilled" && service.value.stop()));
    await raw.removeAll();
    progress("done");
  }
}
