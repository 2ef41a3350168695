import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";

/** Tests that the engine's contract does not cover: lanes and files, with the Podman that DOCKER_HOST names. */
describe("a service over Podman", () => {
  const service = useApp({ engine: "docker" });
  let id = "";
  beforeAll(async () => {
    id = (await service.client.createSandbox({})).sandbox_id;
  });

  test("commands run one after another and many at once", async () => {
    for (let i = 0; i < 10; i++) expect(await service.client.output(id, `echo ${i}`)).toBe(`${i}\n`);
    const many = Array.from({ length: 4 }, (_, i) => service.client.output(id, `sleep 0.2; echo ${i}`));
    expect(await Promise.all(many)).toEqual(Array.from({ length: 4 }, (_, i) => `${i}\n`));
  });

  test("files are written and read", async () => {
    const data = Buffer.from(Array.from({ length: 100_000 }, (_, i) => i % 256));
    await service.client.call("FileService/WriteFile", { sandbox_id: id, path: "/workspace/f", data });
    const read = { sandbox_id: id, path: "/workspace/f" };
    const answer = await service.client.call("FileService/ReadFile", read);
    expect(Buffer.compare(answer.data, data)).toBe(0);
  });
});
