import { expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { TestDesktop } from "../../support/desktop.ts";
import { eventually } from "../../support/eventually.ts";
import { DESKTOP_IMAGE, MISSING_IMAGE } from "../../support/images.ts";
import { useLastingApp } from "../../support/lasting-service.ts";
import { Worker } from "../../support/worker.ts";

const service = useLastingApp({ BERTH_ENGINE: "docker", BERTH_DESKTOP_IMAGE: DESKTOP_IMAGE });

test("after a kill of the service, a session continues with a new desktop of its size in its sandbox", async () => {
  const desktop = new TestDesktop(new Worker(service.client, "user"));
  await desktop.start({ screen_size: [801, 601] });
  await desktop.open("xterm", ({ class: name }) => name === "XTerm");
  const [before] = await desktop.worker.list();
  await service.kill();
  await service.begin();
  const again = new TestDesktop(new Worker(service.client, "user"));
  const { data } = await again.screenshot();
  expect(data).toMatchObject({ width: 801, height: 601, session_restarted: true });
  const [after] = await again.worker.list();
  expect(after?.session_id).toBe(before?.session_id);
  expect(after?.sandbox_id).toBe(before?.sandbox_id);
  // The old desktop ended with its service, with everything on it.
  const sandboxId = after?.sandbox_id ?? "";
  await eventually(
    async () => (await service.client.output(sandboxId, "pgrep -c Xvfb; pgrep -c xterm; true")) === "1\n0\n",
  );
  expect(await again.windows()).toEqual([]);
  await again.worker.destroy("vm");
});

const without = useApp({ engine: "docker", desktopImage: MISSING_IMAGE });

test.each(["vm", "browser"])("a %s whose image is unavailable says how to get it", async (type) => {
  const { status, failure } = await new Worker(without.client, "user").create(type);
  expect(status).toBe("SESSION_RESULT_STATUS_FAILED");
  expect(failure?.detail?.reason).toBe("ERROR_REASON_IMAGE_UNAVAILABLE");
  expect(failure?.message).toMatch(/scripts\/base-image\.sh --desktop .* --desktop-image/);
});
