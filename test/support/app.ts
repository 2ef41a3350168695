import { afterAll, beforeAll, expect } from "vitest";
import { startApp } from "../../src/app.ts";
import { PlainHeaders } from "../../src/base/plain-headers.ts";
import type { RunningService } from "../../src/cli/service.ts";
import { Client } from "./client.ts";
import { containersOf } from "./docker.ts";
import { eventually } from "./eventually.ts";
import { MemoryLog } from "./memory-log.ts";
import { type TestSettings, testSettings } from "./settings.ts";

// As in src/main.ts.
globalThis.Headers = PlainHeaders;

/** A service in this process, on its own port, with a client. */
export interface TestApp {
  readonly app: RunningService;
  readonly client: Client;
  readonly instance: string;
  readonly log: MemoryLog;
  /** Stops it. Fails if it left a container behind or logged an error. */
  stop(): Promise<void>;
}

export async function startTestApp(changes: TestSettings = {}): Promise<TestApp> {
  const settings = testSettings(changes);
  const log = new MemoryLog();
  const app = await startApp(settings, log);
  const client = new Client(app.address);
  return {
    app,
    client,
    log,
    instance: settings.instance,
    stop: async () => {
      client.close();
      const { left } = await app.stop();
      expect(left).toEqual([]);
      if (settings.engine !== "bubblewrap") await expectNoContainers(settings.instance);
      expect(log.errors).toEqual([]);
    },
  };
}

/** Gives all tests of a file one service, and stops it after the last. */
export function useApp(changes: TestSettings = {}): TestApp {
  let running: TestApp | undefined;
  beforeAll(async () => {
    running = await startTestApp(changes);
  });
  afterAll(() => running?.stop());
  const get = (): TestApp => {
    if (running === undefined) throw new Error("the service is not started before the tests run");
    return running;
  };
  return {
    get app() {
      return get().app;
    },
    get client() {
      return get().client;
    },
    get instance() {
      return get().instance;
    },
    get log() {
      return get().log;
    },
    stop: () => get().stop(),
  };
}

/** Fails if the instance still has containers after the short time that a removal may take to show. */
export async function expectNoContainers(instance: string): Promise<void> {
  await expectContainers(instance, 0);
}

/** Fails unless the instance soon has this many containers. */
export async function expectContainers(instance: string, count: number): Promise<void> {
  const names = async (): Promise<string[]> =>
    (await containersOf(instance)).map(({ Names }) => Names.join());
  let found: string[] = [];
  await eventually(
    async () => {
      found = await names();
      return found.length === count;
    },
    { describe: () => ({ wanted: count, found }) },
  );
}
