import { expect, test } from "vitest";
import { MAX_STREAMS } from "../../../src/workspaces/transfers.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const service = useApp({ engine: "bubblewrap" });
const workspaces = new WorkspaceClient(() => service.client);

test("exports that nobody reads cause further ones to be refused, but not forks, and no exports after them", async () => {
  const content = Buffer.alloc(32 << 20, "x");
  await workspaces.import("large", makeTar([{ name: "file", content }]), {});
  await workspaces.create("small");
  const open = Array.from({ length: MAX_STREAMS }, () =>
    service.client.stream("WorkspaceService/ExportWorkspace", { workspace_id: "large" }),
  );
  const first = await Promise.all(open.map((stream) => stream[Symbol.asyncIterator]().next()));
  expect(first.filter(({ done }) => done)).toEqual([]);
  const refused = {
    code: "RESOURCE_EXHAUSTED",
    reason: "TOO_MANY_OPERATIONS",
    metadata: { limit: String(MAX_STREAMS) },
  };
  expect(await failureOf(workspaces.export("small"))).toMatchObject(refused);
  expect(await failureOf(workspaces.diff("small", "large"))).toMatchObject(refused);
  expect(
    await failureOf(workspaces.import("small", makeTar([{ name: "a", content: "b" }]), {})),
  ).toMatchObject(refused);
  const names = Array.from({ length: 6 }, (_, index) => `fork-${index}`);
  await Promise.all(names.map((name) => workspaces.fork("small", name)));
  for (const stream of open) stream.on("error", () => {}).cancel();
  await eventually(() =>
    workspaces.export("small").then(
      () => true,
      () => false,
    ),
  );
});
