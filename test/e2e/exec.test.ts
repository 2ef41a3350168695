import { beforeAll, expect, test } from "vitest";
import { useApp } from "../support/app.ts";

const app = useApp();
let sandboxId = "";
beforeAll(async () => {
  ({ sandbox_id: sandboxId } = await app.client.createSandbox());
});

test("smoke", async () => {
  const run = app.client.exec(sandboxId, "echo hello; echo bad >&2; exit 3");
  const result = await run.result;
  expect(result).toMatchObject({ exit: { cause: "EXIT_CAUSE_EXITED", exit_code: 3 } });
  expect(result.stdout.toString()).toBe("hello\n");
});
