import { writeFileSync } from "node:fs";
import { afterAll, describe, expect } from "vitest";
import { BubblewrapEngine } from "../../../src/engine/bubblewrap/engine.ts";
import { failure, run, silent, spec } from "../../integration/engine/docker/support.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { outsideSuite } from "./outside-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

// ordinary-user.test.ts also runs this file as a user who cannot write control groups. The virtual machine's tests run
// it with control groups delegated to that user, where it must be alone in one.
const ownGroup = process.env.BERTH_TEST_OWN_GROUP;
if (ownGroup !== undefined) writeFileSync(`${ownGroup}/cgroup.procs`, String(process.pid));
const mayWriteGroups = process.getuid?.() === 0 || ownGroup !== undefined;
const options = { logger: silent, image: TEST_IMAGE };
const shared = useSharedDirectory();
const engine = new BubblewrapEngine({ ...options, allowedHostPaths: [shared] });
const stranger = new BubblewrapEngine(options);
afterAll(async () => {
  await engine.close();
  await stranger.close();
});

const withoutControlGroups: Subject["exceptions"] = {
  pause: {
    reason: "this user may write no control groups",
    instead: async () => {
      const { ref } = await engine.create(spec());
      expect((await failure(engine.pause(ref), "UNSUPPORTED")).message).toContain("berth doctor");
      expect((await run(engine, ref, ["true"])).exitCode).toBe(0);
    },
  },
  memory: {
    reason: "without control groups each process is held to the bound, not the sandbox",
    instead: async () => {
      const { ref } = await engine.create(spec());
      const { exitCode, stderr } = await run(engine, ref, ["python3", "-c", "bytearray(1 << 30)"]);
      expect([exitCode, stderr.toString()]).toEqual([1, expect.stringContaining("MemoryError")]);
    },
  },
};

const subject: Subject = {
  ...{ engine, stranger, spec, user: "user" },
  signalMain: async (ref, signal) => {
    // Process 1 belongs to bwrap, and a sandbox cannot end it.
    await run(engine, ref, ["kill", "-s", signal.slice(3), "2"]).catch(() => {});
  },
  exceptions: {
    users: {
      reason: "its sandboxes have one user",
      instead: async () => {
        const { ref } = await engine.create(spec());
        for (const user of ["", "user", "1000", "1000:1000", "user:user"]) {
          expect((await run(engine, ref, ["id", "-u"], { user })).stdout.toString(), user).toBe("1000\n");
        }
        for (const user of ["root", "0", "nobody", "1000:0", "1000:1000:1000"]) {
          await failure(run(engine, ref, ["id"], { user }), "INVALID_ARGUMENT");
        }
      },
    },
    ...(mayWriteGroups ? {} : withoutControlGroups),
  },
};

describe("bubblewrap, hardening", () => hardeningSuite({ subject, shared, capabilities: [] }));
describe("bubblewrap, processes", () => spawnSuite(subject));
describe("bubblewrap, sandboxes", () => lifecycleSuite(subject));
describe("bubblewrap, processes seen from outside", () => outsideSuite(subject));
