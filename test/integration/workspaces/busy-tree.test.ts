import { open, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { describe, expect, onTestFinished, test } from "vitest";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { useApp } from "../../support/app.ts";
import { CHANGE_TREE, expectWhole } from "../../support/busy-tree.ts";
import { ENGINES } from "../../support/engines.ts";
import { scaled } from "../../support/scale.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const TIMES = scaled(25, 8);
const TIB = 2 ** 40;
const MAX_BYTES = 64 * 2 ** 20;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const service = useApp(settings);
  const workspaces = new WorkspaceClient(() => service.client);

  /** A whole archive. Fails if it is larger than any may be here. */
  async function archiveOf(items: AsyncIterable<{ readonly chunk: Buffer }>): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const { chunk } of items) {
      bytes += chunk.length;
      if (bytes > MAX_BYTES) throw new Error("the archive is too large");
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  }
  const exported = (workspace: string) =>
    archiveOf(service.client.stream("WorkspaceService/ExportWorkspace", { workspace_id: workspace }));
  const downloaded = (sandboxId: string, where: string) =>
    archiveOf(service.client.stream("FileService/DownloadArchive", { sandbox_id: sandboxId, path: where }));

  test("a workspace that keeps changing is still exported, downloaded and measured", async () => {
    const id = await workspaces.sandbox("busy");
    const change = service.client.exec(id, CHANGE_TREE);
    await change.until("ready");
    onTestFinished(async () => {
      await service.client.output(id, "touch stop");
      await change.result;
    });
    const failures: string[] = [];
    const take = (work: Promise<unknown>) => work.catch((error: unknown) => failures.push(String(error)));
    for (let time = 0; time < TIMES; time++) {
      await take(exported("busy").then((archive) => expectWhole(archive, "tree/calm")));
      await take(downloaded(id, "tree").then((archive) => expectWhole(archive, "calm")));
      await take(workspaces.get("busy", { measure_size: true }));
    }
    expect(failures).toEqual([]);
  });

  test("a sparse file of 1 TiB keeps its holes in every kind of copy", async () => {
    const id = await workspaces.sandbox("sparse");
    await service.client.output(
      id,
      "printf begin >large; truncate -s 1T large; printf end >>large; chmod 444 large; printf a >small; truncate -s 500K small; printf b >>small",
    );
    const expectHoles = async (workspace: string): Promise<void> => {
      const { path: where } = await workspaces.get(workspace);
      const large = await stat(path.join(where, "large"));
      expect([large.size, large.mode & 0o777]).toEqual([TIB + 3, 0o444]);
      expect(large.blocks * 512).toBeLessThan(2 ** 20);
      const handle = await open(path.join(where, "large"));
      const { buffer } = await handle.read(Buffer.alloc(8), 0, 8, TIB - 5);
      await handle.close();
      expect(buffer.toString("latin1")).toBe("\0\0\0\0\0end");
      expect((await stat(path.join(where, "small"))).size).toBe(500 * 1024 + 1);
    };
    const fromHost = await exported("sparse");
    const fromSandbox = await downloaded(id, ".");
    for (const archive of [fromHost, fromSandbox]) expect(archive.length).toBeLessThan(2 ** 20);
    for await (const item of readTar(Readable.from([fromHost]))) {
      // Small holes are written as zeros, which every tar can read.
      if (item.type === "entry") expect(item.entry.sparse !== undefined).toBe(item.entry.name === "large");
    }
    await workspaces.import("imported", fromHost);
    await expectHoles("imported");
    await workspaces.import("again", fromSandbox);
    await expectHoles("again");
    const other = await workspaces.sandbox("uploaded");
    await service.client.upload("FileService/UploadArchive", [
      { header: { sandbox_id: other, path: "." } },
      { chunk: fromHost },
    ]);
    await expectHoles("uploaded");
    expect((await readdir((await workspaces.get("uploaded")).path)).sort()).toEqual(["large", "small"]);
  });
});
