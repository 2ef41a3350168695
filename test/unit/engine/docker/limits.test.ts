import { expect, test } from "vitest";
import { requireCapabilities } from "../../../../src/engine/docker/info.ts";
import { spec } from "../../../integration/engine/docker/support.ts";

const ALL = {
  ...{ pause: true, memoryLimit: true, cpuLimit: true, pidsLimit: true, diskLimit: true },
  ...{ egress: true, egressDomains: true, systemCallFilter: true },
};

// A rootless daemon has only the control groups that are delegated to it.
test.each(["memoryLimit", "cpuLimit", "pidsLimit"] as const)(
  "a sandbox is refused by a daemon that lacks %s, never unlimited",
  (capability) => {
    expect(() => requireCapabilities(spec(), ALL)).not.toThrow();
    const refused = expect.objectContaining({ reason: "UNSUPPORTED", metadata: { capability } });
    expect(() => requireCapabilities(spec(), { ...ALL, [capability]: false })).toThrow(refused);
  },
);
