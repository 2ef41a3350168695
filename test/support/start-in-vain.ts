import { setTimeout as sleep } from "node:timers/promises";
import { startApp } from "../../src/app.ts";
import { eventually } from "./eventually.ts";
import { TEST_IMAGE } from "./images.ts";
import { MemoryLog } from "./memory-log.ts";
import { testSettings } from "./settings.ts";

/** How long closed things usually take to be gone. */
const CLOSING_MS = 1_000;
/** Longer than the pauses between any of the service's periodic checks. */
const WATCHED_MS = 2_000;

/**
 * Starts the service where it cannot listen. Prints why, what it did afterwards, and the errors that it logged. Then it
 * has nothing more to do.
 */
const {
  BERTH_LISTEN: listen = "",
  BERTH_INSTANCE: instance = "",
  BERTH_DATA_DIR: dataDir = "",
} = process.env;
const warmPools = [{ image: TEST_IMAGE, count: 1 }];
const log = new MemoryLog();
let reason: unknown = "it started";
await startApp(testSettings({ listen, instance, dataDir, warmPools }), log).catch((error: Error) => {
  reason = error.message;
});
const connecting = (): number =>
  process.getActiveResourcesInfo().filter((kind) => kind.includes("ConnectWrap")).length;
await sleep(CLOSING_MS);
await eventually(() => connecting() === 0);
let connects = 0;
for (const end = performance.now() + WATCHED_MS; performance.now() < end; await sleep(1)) {
  connects += connecting();
}
console.log(JSON.stringify({ reason, connects, errors: log.errors }));
