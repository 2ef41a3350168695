import { writeFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { Worker } from "../../support/worker.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  let worker: Worker;

  beforeAll(async () => {
    worker = new Worker(app.client, "artist");
    const start = performance.now();
    const { status, failure } = await worker.create("vm");
    console.log(name, "create", performance.now() - start);
    expect({ status, failure }).toEqual({ status: "SESSION_RESULT_STATUS_CREATED", failure: null });
  });

  test("a screenshot", async () => {
    for (let i = 0; i < 10; i++) {
      const start = performance.now();
      const { data, attachments } = await worker.execute("vm:screenshot");
      console.log(
        performance.now() - start,
        JSON.stringify(data).slice(0, 200),
        attachments[0]?.content.length,
      );
      writeFileSync(`/tmp/vmt/${name}.png`, attachments[0]?.content ?? "");
    }
  });
});
