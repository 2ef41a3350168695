import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe } from "vitest";
import type { Engine } from "../../../src/engine/port.ts";
import { spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { EVERY_VARIANT } from "../../support/scale.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
const { engine } = useEngine({ pipesDir });
const { engine: stranger } = useEngine();

/**
 * Runs what the suite runs with `sh` in a shell that can use pipes, like every command of the service.
 * @param more further variables for all commands.
 */
const piped = (more: Readonly<Record<string, string>>): Engine =>
  new Proxy(engine, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      if (name !== "spawn") return member.bind(target);
      const spawn: Engine["spawn"] = (ref, { argv, env, ...request }, sink, signal) => {
        const [program = "", ...args] = argv;
        const shells = { argv: [program === "sh" ? "/bin/sh" : program, ...args], env: { ...env, ...more } };
        return target.spawn(ref, { ...request, ...shells }, sink, signal);
      };
      return spawn;
    },
  });

// A zygote cannot set variables with such a name, so the daemon has to start the command.
describe.each([
  ["its zygotes", {}],
  ["the daemon", { BERTHZ_TEST: "1" }],
])("docker with pipes of its own, started by %s", (name, more) => {
  const subject: Subject = {
    ...{ engine: piped(more), stranger, spec, user: "nobody", exceptions: {}, idleProcesses: 3 },
    signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
  };

  describe("processes", () => spawnSuite(subject));
  // Who starts commands changes nothing about sandboxes.
  if (EVERY_VARIANT || name === "its zygotes") describe("sandboxes", () => lifecycleSuite(subject));
});
