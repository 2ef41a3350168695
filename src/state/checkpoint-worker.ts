import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { parentPort, workerData } from "node:worker_threads";

// The worker thread of checkpoints.ts. It copies the log at each message, and ends after some time without one.
const IDLE_MS = 10_000;

const file = pathToFileURL(String(workerData));
file.searchParams.set("mode", "rw"); // It creates no file.
const database = new DatabaseSync(file, { timeout: 0 });
// A passive checkpoint waits for nobody, and nobody waits for it.
const checkpoint = database.prepare("PRAGMA wal_checkpoint(PASSIVE)");

const idle = setTimeout(() => {
  database.close();
  parentPort?.close();
}, IDLE_MS);

parentPort?.on("message", () => {
  checkpoint.get();
  idle.refresh();
});
