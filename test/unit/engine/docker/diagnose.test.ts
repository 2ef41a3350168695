import { expect, test } from "vitest";
import { diagnoseRuntimes } from "../../../../src/engine/docker/diagnose.ts";

const runc = { Runtimes: { runc: {} } };

test("a runtime that Docker knows is ok", () => {
  expect(diagnoseRuntimes(runc, { runc: "CONTAINER" })).toMatchObject([
    { subject: "runtime runc", status: "ok" },
  ]);
});

test.each([
  ["runsc", "bin/runsc install"],
  ["kata", 'Add to /etc/docker/daemon.json: "runtimes": {"kata"'],
])("%s, which Docker does not know, comes with what registers it", (name, fix) => {
  expect(diagnoseRuntimes(runc, { [name]: "USER_KERNEL" })).toMatchObject([
    { subject: `runtime ${name}`, status: "limited", fix: expect.stringContaining(fix) },
  ]);
});
