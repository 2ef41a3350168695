import { fstatSync } from "node:fs";
import { isBuiltin } from "node:module";
import type { Writable } from "node:stream";
import { within } from "./base/async.ts";
import { keepCompiled, keepCompiledForUser } from "./base/compile-cache.ts";
import { keepThreadPoolAwake } from "./base/thread-pool.ts";
import { Failed, UsageError } from "./cli/exit.ts";
import type { runProgram } from "./cli/program.ts";
import { VERSION } from "./version.ts";

/** The Node version that the service needs. Clients also run on 20. */
const SERVICE_NODE = 24;

/** How long readers of stdout and stderr may take for what is left when the program ends. */
const SLOW_READER_MS = 2_000;

const program = {
  io: {
    // A getter, so that only commands that read stdin open it.
    get stdin() {
      // Node would read it as an empty file.
      if (fstatSync(0).isDirectory()) throw new UsageError("stdin is a directory: redirect a file");
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
  },
  service: {
    start: async (config, logger, signal) => {
      keepCompiled(config.dataDir);
      const { startApp, settingsOf } = await loadService();
      return startApp(settingsOf(config), logger, signal);
    },
    diagnose: async (config, runs) => {
      const { diagnose, settingsOf } = await loadService();
      return diagnose(settingsOf(config), runs);
    },
  },
  version: VERSION,
  exit: (code) => process.exit(code),
} satisfies Parameters<typeof runProgram>[1];

void main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<void> {
  keepThreadPoolAwake();
  // The service keeps compiled code in its own directory.
  if (args[0] !== "serve") keepCompiledForUser();
  const { runProgram } = await import("./cli/program.ts");
  const exitCode = await runProgram(args, program);
  process.exitCode = exitCode;
  // A pipe whose reader is slow may not have taken why the program ends.
  await within(Promise.all([process.stdout, process.stderr].map(written)), SLOW_READER_MS);
  // Do not wait for anything that is still open, such as a stdin that nobody reads.
  process.exit(exitCode);
}

/** Waits until everything on a stream is written, or cannot be. */
function written(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    if (stream.writableLength === 0) resolve();
    else stream.write("", () => resolve());
  });
}

/** Loads the service on demand: a client's command does not wait for its code, and runs on an older Node. */
async function loadService() {
  if (!isBuiltin("node:sqlite")) {
    const found = `this needs Node ${SERVICE_NODE}, and this is ${process.versions.node}`;
    throw new Failed(found, {
      hint: "Install berth with the scripts of its packages, which bring one: without --ignore-scripts",
    });
  }
  const [{ collectWhenIdle, tuneMemory }, { PlainHeaders }] = await Promise.all([
    import("./base/memory.ts"),
    import("./base/plain-headers.ts"),
  ]);
  tuneMemory();
  collectWhenIdle();
  globalThis.Headers = PlainHeaders;
  const [app, settings] = await Promise.all([import("./app.ts"), import("./config/settings.ts")]);
  return { ...app, ...settings };
}
