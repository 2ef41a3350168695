import { describe } from "vitest";
import { spec, useEngine } from "../../integration/engine/docker/support.ts";
import { docker } from "../../support/docker.ts";
import { lifecycleSuite } from "./lifecycle-suite.ts";
import { outsideSuite } from "./outside-suite.ts";
import { spawnSuite } from "./spawn-suite.ts";
import type { Subject } from "./subject.ts";

const { engine } = useEngine();
const { engine: stranger } = useEngine();

const subject: Subject = {
  ...{ engine, stranger, spec, user: "nobody", exceptions: {} },
  signalMain: (ref, signal) => docker.getContainer(ref).kill({ signal }),
};

describe("docker, processes", () => spawnSuite(subject));
describe("docker, sandboxes", () => lifecycleSuite(subject));
describe("docker, processes seen from outside", () => outsideSuite(subject));
