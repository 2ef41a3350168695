import { isBuiltin } from "node:module";
import { keepCompiled } from "./base/compile-cache.ts";
import { collectWhenIdle, tuneMemory } from "./base/memory.ts";
import { keepThreadPoolAwake } from "./base/thread-pool.ts";
import { Failed } from "./cli/exit.ts";
import { runProgram } from "./cli/program.ts";
import { VERSION } from "./version.ts";

/** What the service runs on; clients run on 20, too. */
const SERVICE_NODE = 24;

const program = {
  io: {
    // A getter: opening stdin is for the commands that read it.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
  },
  service: {
    start: async (config, logger) => {
      keepCompiled(config.dataDir);
      const { startApp, settingsOf } = await loadService();
      return startApp(await settingsOf(config), logger);
    },
    diagnose: async (config) => {
      const { diagnose, settingsOf } = await loadService();
      return diagnose(await settingsOf(config));
    },
  },
  version: VERSION,
  exit: (code) => process.exit(code),
} satisfies Parameters<typeof runProgram>[1];

keepThreadPoolAwake();
const exitCode = await runProgram(process.argv.slice(2), program);
// What is still open, such as a stdin that nobody reads any more, must not keep the program running.
process.exit(exitCode);

/** Loads the service on demand: a client's command does not wait for its code, and runs under an older Node. */
async function loadService() {
  if (!isBuiltin("node:sqlite")) {
    const found = `this needs Node ${SERVICE_NODE}, and this is ${process.versions.node}`;
    throw new Failed(found, {
      hint: "Install berth with the scripts of its packages, which bring one: without --ignore-scripts",
    });
  }
  tuneMemory();
  collectWhenIdle();
  const [app, settings] = await Promise.all([import("./app.ts"), import("./config/settings.ts")]);
  return { ...app, ...settings };
}
