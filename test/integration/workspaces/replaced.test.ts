import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES, shareOf } from "../../support/engines.ts";
import { manyNames } from "../../support/many-names.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

/** Methods that read a workspace for a while, with their requests. */
const READERS = {
  "WorkspaceService/DiffWorkspace": { base_workspace_id: "nought" },
  "WorkspaceService/ExportWorkspace": {},
} as const;
type Reader = keyof typeof READERS;

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const service = useApp(settings);
  const workspaces = new WorkspaceClient(() => service.client);

  test.each(shareOf(name, Object.keys(READERS) as Reader[]))(
    "%s of a workspace that is deleted or replaced meanwhile gives no partial answer",
    async (method) => {
      const slow = async (name: string) => {
        const id = await workspaces.sandbox(name);
        // Megabytes of names, which do not fit into the buffers while the reader waits.
        await service.client.output(id, `mkdir many; cd many; ${manyNames(10_000, "%0200d")}`);
        await workspaces.stop(name);
      };
      await workspaces.create("nought");
      /** The error of a call during which something happens, after its first part has arrived. */
      const during = (name: string, happens: () => Promise<unknown>) =>
        failureOf(
          (async () => {
            const request = { ...READERS[method], workspace_id: name };
            let isFirst = true;
            for await (const _ of service.client.stream(method, request)) {
              if (isFirst) await happens();
              isFirst = false;
            }
          })(),
        );
      const of = method.replace("WorkspaceService/", "");
      const [replaced, going] = [`${of}-replaced`, `${of}-going`];
      await slow(replaced);
      const tar = makeTar([{ name: "only", content: "this" }]);
      expect(await during(replaced, () => workspaces.import(replaced, tar, { replace: true }))).toMatchObject(
        {
          code: "FAILED_PRECONDITION",
          reason: "WORKSPACE_IN_USE",
          metadata: { workspace_id: replaced },
        },
      );
      await slow(going);
      expect(await during(going, () => workspaces.cleanup(going, { force: true }))).toMatchObject({
        code: "NOT_FOUND",
        reason: "WORKSPACE_NOT_FOUND",
        metadata: { workspace_id: going },
      });
    },
  );
});
