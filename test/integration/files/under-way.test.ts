import { Readable } from "node:stream";
import { describe, expect, onTestFinished, test } from "vitest";
import { readTar } from "../../../src/files/tar/tar-reader.ts";
import { useApp } from "../../support/app.ts";
import type { Request } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { Worker } from "../../support/worker.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

async function namesIn(tar: Buffer): Promise<string[]> {
  const names: string[] = [];
  for await (const item of readTar(Readable.from([tar]))) {
    if (item.type === "entry") names.push(item.entry.name);
  }
  return names.sort();
}

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  const workspaces = new WorkspaceClient(() => app.client);

  test("the temporary file of a write is not visible", async () => {
    const { client } = app;
    const sandboxId = await workspaces.sandbox("hidden");
    const here = { sandbox_id: sandboxId, path: "." };
    // A file with a similar name is an ordinary file.
    await client.output(sandboxId, "echo word >.berth-notes; echo word >seen");
    const call = new AbortController();
    async function* half(): AsyncGenerator<Request> {
      yield { header: { sandbox_id: sandboxId, path: "new" } };
      yield { chunk: Buffer.from("word\n".repeat(100_000)) };
      await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    }
    const upload = client.upload("FileService/UploadFile", half(), { signal: call.signal });
    upload.catch(() => {});
    onTestFinished(async () => {
      call.abort();
      await upload.catch(() => {});
    });
    const there = async () => (await client.output(sandboxId, "ls -A")).trim().split("\n");
    await eventually(async () => (await there()).length === 3);
    const shown = [".berth-notes", "seen"];

    const { entries } = await client.call("FileService/ListDirectory", here);
    expect(entries.map(({ name }) => name)).toEqual(shown);
    const first = await client.call("FileService/ListDirectory", { ...here, page_size: 1 });
    const next = { ...here, page_size: 1, page_token: first.next_page_token };
    const rest = await client.call("FileService/ListDirectory", next);
    expect([...first.entries, ...rest.entries].map(({ name }) => name)).toEqual(shown);
    expect(rest.next_page_token).toBe("");

    const chunks: Buffer[] = [];
    for await (const { chunk } of client.stream("FileService/DownloadArchive", here)) chunks.push(chunk);
    expect(await namesIn(Buffer.concat(chunks))).toEqual(shown);
    expect(await namesIn(await workspaces.export("hidden"))).toEqual(shown);

    const watch = client.stream("FileService/WatchDirectory", here);
    for await (const { started } of watch) {
      expect(started?.entry_count).toBe(shown.length);
      break;
    }

    const worker = new Worker(client, "searches");
    await worker.create("files", undefined, { sandbox_id: sandboxId });
    const files = shown.map((name) => `/workspace/${name}`);
    expect((await worker.execute("files:glob", { pattern: "{*,.*}" })).data).toMatchObject({ files });
    const found = await worker.execute<{ matches: { path: string }[] }>("files:grep", { pattern: "word" });
    expect(found.data.matches.map(({ path }) => path).sort()).toEqual(files);
    expect(await there()).toHaveLength(3);
  });
});
