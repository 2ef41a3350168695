import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe } from "vitest";
import type { Engine } from "../../../src/engine/port.ts";
import { spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

const pipesDir = mkdtempSync(path.join(tmpdir(), "berth-pipes-"));
afterAll(() => rmSync(pipesDir, { recursive: true, force: true }));
const { engine } = useEngine({ pipesDir });
const { engine: stranger } = useEngine();

/** What the suite runs by `sh` is run by the shell that takes pipes, as every command of the service is. */
const piped: Engine = new Proxy(engine, {
  get(target, name) {
    const member: unknown = Reflect.get(target, name);
    if (typeof member !== "function") return member;
    if (name !== "spawn") return member.bind(target);
    const spawn: Engine["spawn"] = (ref, { argv: [program = "", ...args], ...request }, sink, signal) =>
      target.spawn(
        ref,
        { ...request, argv: [program === "sh" ? "/bin/sh" : program, ...args] },
        sink,
        signal,
      );
    return spawn;
  },
});

const subject: Subject = {
  ...{ engine: piped, stranger, spec, user: "nobody", exceptions: {} },
  signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
};

describe("docker with pipes of its own, processes", () => spawnSuite(subject));
describe("docker with pipes of its own, sandboxes", () => lifecycleSuite(subject));
