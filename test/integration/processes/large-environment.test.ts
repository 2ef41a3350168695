import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";

/** Variables that only `env` sets. */
const SPEC = {
  env: Object.fromEntries(Array.from({ length: 7 }, (_, i) => [`a-${i}`, "x".repeat(110_000)])),
};

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const service = useApp(settings);

  test("a program gets all that is allowed, and one byte more is refused", async () => {
    const { sandbox_id: id } = await service.client.createSandbox(SPEC);
    const exec = (bytes: number, more = {}) => {
      const argv = ["sh", "-c", "echo $#", "sh", "x".repeat(100_000), "x".repeat(bytes)];
      const env = { OWN: "x".repeat(100_000), TERM: "dumb" };
      return service.client.exec(id, argv, { env, ...more }).result;
    };
    const refused = await failureOf(exec(130_000));
    expect(refused).toMatchObject({ reason: "INVALID_ARGUMENT", metadata: { field: "env" } });
    const [, bytes, most] = /take (\d+) bytes; at most (\d+) can/.exec(refused.message) ?? [];
    const fits = 130_000 - (Number(bytes) - Number(most));
    for (const more of [{}, { stdin: Buffer.from("x") }, ...(name === "docker" ? [{ terminal: {} }] : [])]) {
      expect((await exec(fits, more)).stdout.toString().trim()).toBe("2");
    }
    expect((await failureOf(exec(fits + 1))).reason).toBe("INVALID_ARGUMENT");
  });

  test("a command with a terminal is refused if the engine cannot start it", async () => {
    const { sandbox_id: id } = await service.client.createSandbox();
    const { result } = service.client.exec(
      id,
      ["sh", "-c", "echo $#", "sh", "x".repeat(70_000), "x".repeat(70_000)],
      {
        terminal: {},
      },
    );
    if (name === "bubblewrap") expect((await failureOf(result)).message).toMatch(/^terminal: .* 128 KiB/);
    else expect((await result).stdout.toString()).toBe("2\r\n");
  });
});
