import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { Worker } from "../../support/worker.ts";

const WORKERS = scaled(50, 6);
const TYPES = ["bash", "python", "code", "files"] as const;
const CALLS = {
  bash: ["bash:run", { command: "true" }],
  python: ["python:run", { code: "1 + 1" }],
  code: ["code:execute", { language: "bash", code: "true" }],
  files: ["files:write", { file_path: "f", content: "x" }],
} as const;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);

  test(`${WORKERS} workers create, use, expire and destroy sessions of four types while one initializes very slowly`, async () => {
    const { sandbox_id: sandboxId } = await app.client.createSandbox({
      resources: { pids_limit: 2000, memory_bytes: 2 ** 31 },
    });
    // A bash that starts only when a file exists.
    const slowBash =
      "mkdir -p slow; printf '#!/bin/sh\\nwhile [ ! -e /workspace/go ]; do sleep 0.1; done; exec /bin/bash \"$@\"\\n' > slow/bash; chmod +x slow/bash";
    await app.client.output(sandboxId, slowBash);
    const slow = new Worker(app.client, "slow");
    let begun = false;
    const createSlow = () =>
      slow.create("bash", { env: { PATH: "/workspace/slow:/usr/bin:/bin" } }, { sandbox_id: sandboxId });
    const starting = createSlow().finally(() => {
      begun = true;
    });
    let passedBy = 0;
    await eventually(
      async () => (await app.client.run(sandboxId, "pgrep -f slow/bash")).exit_status.exit_code === 0,
    );

    await Promise.all(
      Array.from({ length: WORKERS }, async (_, index) => {
        const worker = new Worker(app.client, `crowd ${index}`);
        const created = await Promise.all(
          TYPES.map((type) =>
            worker.create(type, undefined, {
              sandbox_id: sandboxId,
              // Every third worker's sessions expire by themselves.
              ...(index % 3 === 0 && { ttl: { seconds: 1 } }),
            }),
          ),
        );
        expect(created.map(({ failure }) => failure?.message)).toEqual([
          undefined,
          undefined,
          undefined,
          undefined,
        ]);
        if (!begun) passedBy++;
        if (index % 3 > 0) {
          const answers = await Promise.all(
            TYPES.map((type) => worker.execute(CALLS[type][0], CALLS[type][1])),
          );
          expect(answers.map(({ code, meta }) => [code, meta.temporary_session])).toEqual(
            TYPES.map(() => [0, false]),
          );
          await worker.destroy();
        }
        await eventually(async () => (await worker.list()).length === 0);
      }),
    );
    // It gives up after half a minute, and a crowd on a busy machine may take longer.
    expect(passedBy).toBeGreaterThan(0);

    await app.client.output(sandboxId, "touch go");
    await starting;
    expect((await createSlow()).failure).toBeNull();
    expect((await slow.bash("echo ready")).stdout).toBe("ready\n");
  }, 300_000);
});
