import { describe } from "vitest";
import { spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { hardeningSuite, useSharedDirectory } from "./hardening-suite.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { outsideSuite } from "./outside-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

const shared = useSharedDirectory();
const { engine } = useEngine({ allowedHostPaths: [shared] });
const { engine: stranger } = useEngine();

const subject: Subject = {
  ...{ engine, stranger, spec, user: "nobody", exceptions: {} },
  signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
};

/** CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID and SETUID. */
const capabilities = [0, 1, 3, 5, 6, 7];
const open = {
  calls: ["io_uring_setup", "io_uring_enter", "io_uring_register", "socket vsock"],
  reason: "the profile is the daemon's, and Docker before 25 lets these through",
};

describe("docker, hardening", () => hardeningSuite({ subject, shared, capabilities, open }));
describe("docker, processes", () => spawnSuite(subject));
describe("docker, sandboxes", () => lifecycleSuite(subject));
describe("docker, processes seen from outside", () => outsideSuite(subject));
