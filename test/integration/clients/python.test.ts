import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { ServeProcess } from "../../support/program.ts";
import { PythonTests, pythonOf } from "../../support/python-tests.ts";

let python: PythonTests;
beforeAll(async () => {
  python = await PythonTests.start();
});
afterAll(() => python?.[Symbol.asyncDispose]());

// Only against hangs: each test runs a whole Python suite, and on first use creates its environment.
describe.concurrent("the Python client", { timeout: 600_000 }, () => {
  test("passes its tests with the newest grpcio and protobuf that it accepts", async () => {
    const output = await python.pytest("newest", "not vm");
    expect(output).toMatch(/^\d{2,} passed, \d+ deselected in /m);
  });

  test("runs every block of the session document on a desktop", async () => {
    const desktops = await ServeProcess.start([], {
      BERTH_ENGINE: "docker",
      BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE,
    });
    try {
      const env = { ...python.environment, BERTH_ADDRESS: desktops.address };
      const output = await python.pytest("newest", "vm", env);
      expect(output).toMatch(/^8 passed, \d+ deselected in /m);
    } finally {
      await desktops.stop();
    }
  });

  test("has a synchronous client generated from the asyncio one", async () => {
    await python.passes(await pythonOf("newest"), ["generate_sync.py", "--check"]);
  });
});
