import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const service = useApp(settings);

  test("the metrics count what is not working, and are 0 when everything works", async () => {
    const { sandbox_id: id } = await service.client.createSandbox();
    expect(await service.client.output(id, "echo usable")).toBe("usable\n");
    const response = await fetch(`http://${service.app.address}/metrics`);
    const lines = (await response.text()).split("\n");
    expect(lines).toContain("berth_sandboxes_stuck_deleting 0");
    expect(lines).toContain("berth_sandboxes_without_pipes 0");
    expect(lines).toContain("berth_orphaned_pipes 0");
    await service.client.deleteSandbox(id);
  });
});
