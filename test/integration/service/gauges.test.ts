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

  test("the metrics show whether the engine answers, what room there is, and which tenant has it", async () => {
    const { sandbox_id: id } = await service.client.createSandbox();
    const command = service.client.exec(id, "sleep 600");
    const processId = await command.processId;
    const lines = async () =>
      (await (await fetch(`http://${service.app.address}/metrics`)).text()).split("\n");
    const used = ["berth_sandboxes 1", 'berth_tenant_sandboxes{tenant="default"} 1'];
    const memory = `berth_tenant_memory_bytes{tenant="default"} ${512 * 1024 * 1024}`;
    expect(await lines()).toEqual(
      expect.arrayContaining([
        ...["berth_engine_available 1", "berth_sandboxes_limit 100", ...used, memory],
        'berth_tenant_commands{tenant="default"} 1',
      ]),
    );
    const kill = { process_id: processId, signal: 9 };
    await service.client.call("ProcessService/SignalProcess", kill);
    await command.result;
    await expect.poll(lines).toContain('berth_tenant_commands{tenant="default"} 0');
    await service.client.deleteSandbox(id);
    await expect.poll(lines).toContain("berth_sandboxes 0");
    expect(await lines()).toContain('berth_tenant_sandboxes{tenant="default"} 0');
  });
});
