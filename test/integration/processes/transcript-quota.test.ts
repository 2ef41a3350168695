import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";

const MIB = 1024 * 1024;
const QUOTA = 8 * MIB;
const UNREAD = 6;
/** How far each command may be ahead despite the quota, plus what is in transit when it is made to wait. */
const SLACK = MIB;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp({ ...settings, transcriptOwnerQuotaBytes: QUOTA, deleteGraceMs: 0 });
  const kept = async () => (await app.client.call("SandboxService/GetStats")).transcripts;

  test("commands that nobody reads keep no more than the quota, and others continue", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    // Unread data fills the window of its whole connection.
    const other = new Client(app.app.address);
    const unread = Array.from({ length: UNREAD }, () => {
      const request = { sandbox_id: id, shell: "yes" };
      return other.stream("ProcessService/Exec", request).on("error", () => {});
    });
    await eventually(async () => (await kept()).owner_used_bytes > QUOTA);
    // Their output keeps arriving, and displaces older output.
    for (let look = 0; look < 20; look++) {
      expect((await kept()).owner_used_bytes).toBeLessThan(QUOTA + UNREAD * SLACK);
      await sleep(100);
    }
    const figures = await kept();
    expect(figures.owner_limit_bytes).toBe(QUOTA);
    expect(figures.used_bytes).toBe(figures.owner_used_bytes);

    const { stdout, exit_status: exit } = await app.client.run(id, `head -c ${4 * MIB} /dev/zero`, {
      max_output_bytes: 16 * MIB,
    });
    expect(exit.exit_code).toBe(0);
    expect(stdout).toHaveLength(4 * MIB);
    for (const call of unread) call.cancel();
    other.close();
    await app.client.deleteSandbox(id);
  });

  test("the output of ended commands is dropped for newer output, oldest first, and readers see the gap", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const ids: string[] = [];
    for (let i = 0; i < 4; i++) {
      const execution = app.client.exec(id, `head -c ${4 * MIB} /dev/zero`, {
        on_disconnect: "ON_DISCONNECT_DETACH",
      });
      expect((await execution.result).exit.exit_code).toBe(0);
      ids.push(await execution.processId);
    }
    await eventually(async () => (await kept()).owner_used_bytes <= QUOTA);
    const [first, , , last] = await Promise.all(ids.map((one) => app.client.attach(one).result));
    expect(first?.gaps.length).toBeGreaterThan(0);
    expect(first?.exit.stdout_bytes).toBe(4 * MIB);
    expect(last?.gaps).toEqual([]);
    expect(last?.stdout).toHaveLength(4 * MIB);
    await app.client.deleteSandbox(id);
  });
});
