import { describe, expect } from "vitest";
import { run, sh, spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { outsideSuite } from "./outside-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";
import { unreadStdin } from "./unread-stdin.ts";

// Uses Podman's socket that DOCKER_HOST names.
const shared = useSharedDirectory();
const { engine } = useEngine({ allowedHostPaths: [shared] });
const { engine: stranger } = useEngine();

const subject: Subject = {
  ...{ engine, stranger, spec, user: "nobody" },
  signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
  exceptions: {
    unreadStdin: unreadStdin(engine, spec),
    heldOutput: {
      reason: "Podman ends the output of a process when that ends, whatever its children hold",
      instead: async () => {
        const { ref } = await engine.create(spec());
        const line =
          "(while ! test -e /tmp/let-go; do sleep 0.1; done; touch /tmp/gone) & echo early; exit 7";
        const { exitCode, stdout, broken } = await run(engine, ref, ["sh", "-c", line]);
        expect([exitCode, stdout.toString(), broken]).toEqual([7, "early\n", undefined]);
        await sh(engine, ref, "touch /tmp/let-go");
        await eventually(async () => (await run(engine, ref, ["test", "-e", "/tmp/gone"])).exitCode === 0);
      },
    },
  },
};

/** CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID. */
const capabilities = [0, 1, 3, 5, 6, 7];

describe("podman, processes", () => spawnSuite(subject));
describe("podman, sandboxes", () => lifecycleSuite(subject));
describe("podman, processes seen from outside", () => outsideSuite(subject));
describe("podman, hardening", () =>
  hardeningSuite({ subject, shared, capabilities, environment: ["TERM", "container"] }));
