import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const service = useApp(settings);

  test("the service and every sandbox report the engine and its isolation", async () => {
    const isolation = name === "docker" ? "ISOLATION_LEVEL_CONTAINER" : "ISOLATION_LEVEL_NAMESPACE";
    const { engine } = await service.client.call("SandboxService/GetStats");
    expect(engine).toMatchObject({ name, isolation, available: true });
    const sandbox = await service.client.createSandbox();
    expect(sandbox).toMatchObject({ engine: name, isolation });
    await service.client.deleteSandbox(sandbox.sandbox_id);
  });

  test("commands run, one after the other and at once", async () => {
    const { sandbox_id: id } = await service.client.createSandbox();
    expect(await service.client.output(id, "echo $((6 * 7)); pwd")).toBe("42\n/workspace\n");
    const outputs = await Promise.all(
      Array.from({ length: 20 }, (_, i) => service.client.output(id, `echo ${i} >f${i}; cat f${i}`)),
    );
    expect(outputs).toEqual(outputs.map((_, i) => `${i}\n`));
    const { exit_status: exit } = await service.client.run(id, "exit 7");
    expect(exit.exit_code).toBe(7);
    await service.client.deleteSandbox(id);
  });
});
