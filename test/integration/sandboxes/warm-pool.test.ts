import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { containerOf, containersOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { TEST_IMAGE } from "../../support/images.ts";

describe("a warm pool", () => {
  const service = useApp({ warmPools: [{ image: TEST_IMAGE, count: 3 }], maxSandboxes: 5 });
  const ready = async (): Promise<number> => {
    const { warm_pools: pools } = await service.client.call("SandboxService/GetStats", {});
    return pools[0]?.ready ?? 0;
  };
  const filled = (): Promise<true> => eventually(async () => (await ready()) === 3);

  test("fills itself, does not count as sandboxes, and a claim takes one with its id", async () => {
    await filled();
    const before = await containersOf(service.instance);
    expect(before).toHaveLength(3);
    expect((await service.client.call("SandboxService/GetStats", {})).total_sandboxes).toBe(0);
    const sandbox = await service.client.createSandbox({});
    expect(before.map(({ Labels }) => Labels["berth.sandbox_id"])).toContain(sandbox.sandbox_id);
    expect(await service.client.output(sandbox.sandbox_id, "echo claimed; pwd")).toBe(
      "claimed\n/workspace\n",
    );
    await filled();
    await service.client.deleteSandbox(sandbox.sandbox_id);
  });

  test("environment, labels and limits of a claim are the requested ones", async () => {
    await filled();
    const count = (await containersOf(service.instance)).length;
    const { sandbox_id: id, spec } = await service.client.createSandbox({
      env: { WARM: "yes it is" },
      labels: { purpose: "test" },
      resources: { memory_bytes: 64 * 1024 * 1024, pids_limit: 99 },
    });
    expect(spec.labels).toEqual({ purpose: "test" });
    expect(await service.client.output(id, "echo $WARM")).toBe("yes it is\n");
    const { HostConfig: host } = await (await containerOf(service.instance, id)).inspect();
    expect(host).toMatchObject({ Memory: 64 * 1024 * 1024, MemorySwap: 64 * 1024 * 1024, PidsLimit: 99 });
    expect(count).toBe(3);
    await service.client.deleteSandbox(id);
  });

  test("a request that no waiting sandbox can meet is made cold", async () => {
    await filled();
    const waiting = (await containersOf(service.instance)).map(({ Labels }) => Labels["berth.sandbox_id"]);
    const { sandbox_id: id } = await service.client.createSandbox({
      working_dir: "/elsewhere",
      user: "1000:1000",
    });
    expect(waiting).not.toContain(id);
    expect(await service.client.output(id, "pwd; id -u")).toBe("/elsewhere\n1000\n");
    await service.client.deleteSandbox(id);
  });

  test("claims respect the limit, and free their place afterwards", async () => {
    const made = await Promise.allSettled(Array.from({ length: 12 }, () => service.client.createSandbox({})));
    const ids = made.flatMap((result) => (result.status === "fulfilled" ? [result.value.sandbox_id] : []));
    expect(new Set(ids).size).toBe(5);
    await Promise.all(ids.map((id) => service.client.deleteSandbox(id)));
    expect((await service.client.call("SandboxService/GetStats", {})).total_sandboxes).toBe(0);
    await filled();
    await eventually(async () => (await containersOf(service.instance)).length === 3);
  });

  test("a waiting sandbox that dies is replaced", async () => {
    await filled();
    const [victim] = await containersOf(service.instance);
    await (await containerOf(service.instance, victim?.Labels["berth.sandbox_id"] ?? "")).kill();
    await eventually(async () => {
      const now = await containersOf(service.instance);
      return now.length === 3 && now.every(({ Id, State }) => Id !== victim?.Id && State === "running");
    });
    await filled();
  });
});
