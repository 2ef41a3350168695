import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, test } from "vitest";
import { UploadFileHeaderSchema, UploadFileRequestSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import { useApp } from "../../support/app.ts";
import { FLAG, FRAME, frame, opening, postFields, RawConnection } from "../../support/attacks/frames.ts";
import { failureOf, type Request } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { grpcFrame } from "../../support/server/http.ts";
import { makeTar } from "../../support/tar-builder.ts";
import type { FileStreamItems, UploadAnswers } from "../../support/wire-files.ts";

const MIB = 1024 * 1024;
const app = useApp();
let sandboxId = "";
beforeAll(async () => {
  ({ sandbox_id: sandboxId } = await app.client.createSandbox());
});

const here = (path: string, more: Request = {}): Request => ({ sandbox_id: sandboxId, path, ...more });

async function upload<Name extends keyof UploadAnswers>(
  name: Name,
  header: Request,
  chunks: readonly Buffer[],
): Promise<UploadAnswers[Name]> {
  return app.client.upload(name, [{ header }, ...chunks.map((chunk) => ({ chunk }))]);
}

async function items<Name extends keyof FileStreamItems>(
  name: Name,
  request: Request,
): Promise<FileStreamItems[Name][]> {
  const found: FileStreamItems[Name][] = [];
  for await (const item of app.client.stream(name, request)) found.push(item as FileStreamItems[Name]);
  return found;
}

describe("the main paths", () => {
  test("a file is written, inspected, read, moved, listed and removed", async () => {
    const { client } = app;
    const data = Buffer.from([0, 1, 0xff, 0x0a]);
    const written = await client.call(
      "FileService/WriteFile",
      here("dir/file", { data, create_parents: true, mode: 0o640 }),
    );
    expect(written.file).toMatchObject({ kind: "FILE_KIND_REGULAR", size_bytes: 4, mode: 0o640, uid: 0 });
    await client.call("FileService/WriteFile", here("dir/file", { data, append: true }));
    const stat = await client.call("FileService/StatFile", here("./dir//file"));
    expect(stat).toMatchObject({
      path: "/workspace/dir/file",
      raw_path: Buffer.from("/workspace/dir/file"),
      file: { size_bytes: 8 },
    });
    expect(Math.abs(stat.file.modify_time.seconds * 1000 - Date.now())).toBeLessThan(60_000);
    const part = await client.call("FileService/ReadFile", here("dir/file", { offset: 2, limit: 3 }));
    expect(part).toMatchObject({
      data: Buffer.from([0xff, 0x0a, 0]),
      end_of_file: false,
      file: { size_bytes: 8 },
    });
    await client.call("FileService/MakeDirectory", here("made", { mode: 0o700 }));
    const moved = { sandbox_id: sandboxId, source_path: "dir/file", target_path: "made/moved" };
    expect((await client.call("FileService/MoveFile", moved)).file.size_bytes).toBe(8);
    const list = await client.call("FileService/ListDirectory", here("made"));
    expect(list).toMatchObject({
      entries: [{ name: "moved", raw_name: Buffer.from("moved") }],
      next_page_token: "",
    });
    await client.call("FileService/RemoveFile", here("made", { recursive: true }));
    expect(await failureOf(client.call("FileService/StatFile", here("made")))).toMatchObject({
      code: "NOT_FOUND",
      reason: "FILE_NOT_FOUND",
    });
  });

  test("names that are not UTF-8 are passed both ways as bytes", async () => {
    const raw = Buffer.from([0x66, 0xff, 0x0a]);
    const about = { sandbox_id: sandboxId, raw_path: Buffer.concat([Buffer.from("raw/"), raw]) };
    await app.client.call("FileService/WriteFile", { ...about, data: raw, create_parents: true });
    const { entries } = await app.client.call("FileService/ListDirectory", here("raw"));
    expect(entries).toMatchObject([{ name: "f\ufffd\n", raw_name: raw }]);
    expect((await app.client.call("FileService/ReadFile", about)).data).toEqual(raw);
  });

  test("pages of a list add up", async () => {
    await app.client.output(sandboxId, "mkdir pages; cd pages; for i in 1 2 3 4 5; do : >f$i; done");
    const names: string[] = [];
    for (let token = ""; ; ) {
      const page = await app.client.call(
        "FileService/ListDirectory",
        here("pages", { page_size: 2, page_token: token }),
      );
      names.push(...page.entries.map(({ name }) => name));
      token = page.next_page_token;
      if (token === "") break;
    }
    expect(names).toEqual(["f1", "f2", "f3", "f4", "f5"]);
  });

  test("8 MiB fit into one message, both ways", async () => {
    const data = randomBytes(8 * MIB);
    await app.client.call("FileService/WriteFile", here("eight", { data }));
    const part = await app.client.call("FileService/ReadFile", here("eight"));
    expect(part.end_of_file).toBe(true);
    expect(part.data.equals(data)).toBe(true);
  });

  test("8 MiB fit into one message of JSON as well, and one byte more does not", async () => {
    const write = (data: Buffer) =>
      fetch(`http://${app.app.address}/berth.v1.FileService/WriteFile`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ sandboxId, path: "json", data: data.toString("base64") }),
      });
    const data = randomBytes(8 * MIB + 1);
    const written = await write(data.subarray(0, 8 * MIB));
    expect(await written.json()).toMatchObject({ file: { sizeBytes: String(8 * MIB) } });
    const part = await app.client.call("FileService/ReadFile", here("json"));
    expect(part.data.equals(data.subarray(0, 8 * MIB))).toBe(true);
    expect(await (await write(data)).json()).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining(`${8 * MIB} bytes`),
    });
  });

  test("a large file is uploaded and downloaded in parts", async () => {
    const chunks = Array.from({ length: 5 }, () => randomBytes(MIB));
    const { file } = await upload(
      "FileService/UploadFile",
      here("large", { size_bytes: 5 * MIB, mode: 0o600 }),
      chunks,
    );
    expect(file).toMatchObject({ size_bytes: 5 * MIB, mode: 0o600 });
    const [header, ...parts] = await items("FileService/DownloadFile", here("large", { offset: 7 }));
    expect(header).toMatchObject({ part: "header", header: { offset: 7, file: { size_bytes: 5 * MIB } } });
    for (const { chunk } of parts) expect(chunk?.length).toBeLessThanOrEqual(MIB);
    const got = Buffer.concat(parts.map(({ chunk }) => chunk ?? Buffer.alloc(0)));
    expect(got.equals(Buffer.concat(chunks).subarray(7))).toBe(true);
  });

  test("a file of many parts arrives whole", async () => {
    const content = randomBytes(24 * MIB);
    const chunks = Array.from({ length: 24 }, (_, at) => content.subarray(at * MIB, (at + 1) * MIB));
    await upload("FileService/UploadFile", here("whole", { size_bytes: content.length }), chunks);
    const got = (await items("FileService/DownloadFile", here("whole"))).map(
      ({ chunk }) => chunk ?? Buffer.alloc(0),
    );
    expect(Buffer.concat(got).equals(content)).toBe(true);
  });

  test("an archive is uploaded and downloaded", async () => {
    const archive = makeTar([
      { name: "d/f", content: "hello" },
      { name: "l", type: "2", linkName: "d/f" },
    ]);
    const done = await upload("FileService/UploadArchive", here("unpacked", { create_parents: true }), [
      archive,
    ]);
    expect(done).toEqual({ entry_count: 2, size_bytes: 5 });
    const parts = await items("FileService/DownloadArchive", here("unpacked"));
    await upload(
      "FileService/UploadArchive",
      here("again", { create_parents: true }),
      parts.map(({ chunk }) => chunk),
    );
    expect(await app.client.output(sandboxId, "cat again/d/f; readlink again/l")).toBe("hellod/f\n");
  });

  test("a watch reports changes", async () => {
    await app.client.output(sandboxId, "mkdir watched");
    const stream = app.client.stream(
      "FileService/WatchDirectory",
      here("watched", { interval: { seconds: 0, nanos: 1e8 } }),
    );
    const seen: FileStreamItems["FileService/WatchDirectory"][] = [];
    stream.on("data", (item) => seen.push(item)).on("error", () => {});
    await eventually(() => seen.length > 0);
    expect(seen[0]).toMatchObject({ item: "started", started: { entry_count: 0 } });
    await app.client.output(sandboxId, "echo hello >watched/new");
    await eventually(() => seen.length > 1);
    expect(seen[1]).toMatchObject({
      item: "change",
      change: {
        type: "FILE_CHANGE_TYPE_CREATED",
        path: "new",
        raw_path: Buffer.from("new"),
        file: { kind: "FILE_KIND_REGULAR" },
      },
    });
    stream.cancel();
    await eventually(async () => (await app.client.getSandbox(sandboxId)).active_operations === 0);
  });

  test("a user other than the sandbox's acts with its own rights", async () => {
    const closed = here("/root/x", { data: Buffer.from("x"), user: "1000:1000" });
    expect(await failureOf(app.client.call("FileService/WriteFile", closed))).toMatchObject({
      code: "PERMISSION_DENIED",
      reason: "FILE_PERMISSION",
    });
    const own = here("/tmp/own", { data: Buffer.from("x"), user: "1000:1000" });
    expect((await app.client.call("FileService/WriteFile", own)).file).toMatchObject({
      uid: 1000,
      gid: 1000,
    });
  });
});

describe("request ids", () => {
  test("a retry gets the first answer and does nothing again", async () => {
    const request = here("once", { request_id: "append-1", data: Buffer.from("x"), append: true });
    const first = await app.client.call("FileService/WriteFile", request);
    expect(await app.client.call("FileService/WriteFile", request)).toEqual(first);
    const other = { ...request, data: Buffer.from("y") };
    expect(await failureOf(app.client.call("FileService/WriteFile", other))).toMatchObject({
      code: "ALREADY_EXISTS",
      reason: "REQUEST_ID_REUSED",
    });
    expect(await app.client.output(sandboxId, "cat once")).toBe("x");
  });

  test("of an upload, the content is not a parameter", async () => {
    const header = here("uploaded-once", { request_id: "upload-1" });
    const first = await upload("FileService/UploadFile", header, [Buffer.from("first")]);
    const again = await upload("FileService/UploadFile", header, [Buffer.alloc(MIB), Buffer.alloc(MIB)]);
    expect(again).toEqual(first);
    expect(await app.client.output(sandboxId, "cat uploaded-once")).toBe("first");
  });

  test("a retry of an upload that arrives before the first caller is known to be gone is carried out", async () => {
    const header = here("retried", { request_id: "upload-2" });
    const call = new AbortController();
    async function* half(): AsyncGenerator<Request> {
      yield { header };
      yield { chunk: Buffer.alloc(MIB) };
      await new Promise((resolve) => call.signal.addEventListener("abort", resolve));
    }
    const lost = app.client.upload("FileService/UploadFile", half(), { signal: call.signal });
    lost.catch(() => {});
    await eventually(async () => (await app.client.output(sandboxId, "ls -A")).includes(".berth"));
    const retry = upload("FileService/UploadFile", header, [Buffer.from("whole")]);
    retry.catch(() => {});
    await app.client.call("SandboxService/GetSandbox", { sandbox_id: sandboxId });
    call.abort();
    expect(await failureOf(lost)).toMatchObject({ code: "CANCELLED" });
    expect((await retry).file.size_bytes).toBe(5);
    expect(await app.client.output(sandboxId, "cat retried")).toBe("whole");
  });
});

test("an upload of the announced size is whole at its end, however late its client answers a ping", async () => {
  const header = create(UploadFileHeaderSchema, { sandboxId, path: "announced", sizeBytes: 5n });
  const parts = [
    { case: "header" as const, value: header },
    { case: "chunk" as const, value: Buffer.from("whole") },
  ].map((part) => grpcFrame(toBinary(UploadFileRequestSchema, create(UploadFileRequestSchema, { part }))));
  const { address } = app.app;
  const connection = (await RawConnection.open(address)).ignore();
  const fields = postFields(address, "/berth.v1.FileService/UploadFile", "application/grpc");
  await connection.send(Buffer.concat([opening(), frame(FRAME.headers, FLAG.endHeaders, 1, fields)]));
  await connection.send(frame(FRAME.data, FLAG.endStream, 1, Buffer.concat(parts)));
  await expect.poll(() => app.client.output(sandboxId, "cat announced || :")).toBe("whole");
  expect(connection.closed).toBe(false);
  connection.close();
});

describe("a client that leaves", () => {
  test("during an upload leaves the old content and nothing else", async () => {
    await app.client.output(sandboxId, "mkdir gone; echo old >gone/file");
    const call = new AbortController();
    async function* half(): AsyncGenerator<Request> {
      yield { header: here("gone/file") };
      yield { chunk: Buffer.alloc(MIB) };
      await eventually(async () => (await app.client.output(sandboxId, "ls -A gone")).includes(".berth"));
      call.abort();
      await sleep(60_000, undefined, { ref: false });
    }
    expect(
      await failureOf(app.client.upload("FileService/UploadFile", half(), { signal: call.signal })),
    ).toMatchObject({ code: "CANCELLED" });
    await eventually(async () => (await app.client.getSandbox(sandboxId)).active_operations === 0);
    expect(await app.client.output(sandboxId, "ls -A gone; cat gone/file")).toBe("file\nold\n");
  });

  test("during a download leaves no process", async () => {
    await app.client.output(sandboxId, "truncate -s 10G sparse");
    const stream = app.client.stream("FileService/DownloadFile", here("sparse"));
    stream.on("error", () => {});
    await new Promise((resolve) => stream.once("data", resolve));
    stream.pause();
    stream.cancel();
    await eventually(async () => (await app.client.getSandbox(sandboxId)).active_operations === 0);
    await eventually(async () => (await app.client.output(sandboxId, "pgrep -c dd || true")) === "0\n");
  });

  test("is not waited for: a refused upload is answered at once", async () => {
    async function* waiting(): AsyncGenerator<Request> {
      yield { header: here("/etc") };
      await new Promise(() => {});
    }
    expect(await failureOf(app.client.upload("FileService/UploadFile", waiting()))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "FILE_KIND",
    });
  });
});

describe("bad input", () => {
  const all = ["StatFile", "ListDirectory", "MakeDirectory", "RemoveFile", "ReadFile", "WriteFile"].map(
    (name) => `FileService/${name}` as "FileService/StatFile",
  );

  test.each<[string, Request, string]>([
    ["no path", {}, "path"],
    ["two paths", { path: "a", raw_path: Buffer.from("a") }, "path"],
    ["NUL", { path: "a\0b" }, "path"],
    ["NUL in bytes", { raw_path: Buffer.from("a\0b") }, "raw_path"],
    ["a path that is too long", { path: "a/".repeat(2049) }, "path"],
    ["a name that is too long", { path: `a/${"b".repeat(256)}` }, "path"],
    ["a way out of the working directory", { path: "../x" }, "path"],
    ["a way out in the middle", { path: "a/../../workspace/x" }, "path"],
    ["an absolute way out", { path: "/workspace/../etc/passwd" }, "path"],
    ["a way above the root", { raw_path: Buffer.from("/tmp/../../x") }, "raw_path"],
    ["an unknown user", { path: "x", user: "nobody-here" }, "user"],
    ["a negative generation", { path: "x", generation: -1 }, "generation"],
    ["no sandbox", { path: "x", sandbox_id: "" }, "sandbox_id"],
  ])("%s is refused everywhere", async (_, request, field) => {
    for (const name of all) {
      const failure = await failureOf(app.client.call(name, { sandbox_id: sandboxId, ...request }));
      expect(failure).toMatchObject({
        code: "INVALID_ARGUMENT",
        reason: "INVALID_ARGUMENT",
        metadata: { field },
      });
    }
    for (const name of ["DownloadFile", "DownloadArchive", "WatchDirectory"] as const) {
      const failure = await failureOf(items(`FileService/${name}`, { sandbox_id: sandboxId, ...request }));
      expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field } });
    }
    for (const name of ["UploadFile", "UploadArchive"] as const) {
      const failure = await failureOf(
        upload(`FileService/${name}`, { sandbox_id: sandboxId, ...request }, [Buffer.alloc(10)]),
      );
      expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field } });
    }
  });

  test.each<
    [
      (
        | "FileService/StatFile"
        | "FileService/ReadFile"
        | "FileService/ListDirectory"
        | "FileService/MakeDirectory"
        | "FileService/WriteFile"
        | "FileService/RemoveFile"
      ),
      Request,
      string,
    ]
  >([
    ["FileService/ReadFile", { offset: -1 }, "offset"],
    ["FileService/ReadFile", { limit: -1 }, "limit"],
    ["FileService/ReadFile", { limit: 8 * MIB + 1 }, "limit"],
    ["FileService/ListDirectory", { page_size: -1 }, "page_size"],
    ["FileService/ListDirectory", { page_token: "!" }, "page_token"],
    ["FileService/MakeDirectory", { mode: 0o10000 }, "mode"],
    ["FileService/WriteFile", { mode: 0o10000 }, "mode"],
    ["FileService/RemoveFile", { path: "/tmp/.." }, "path"],
  ])("%s with %j", async (name, request, field) => {
    const failure = await failureOf(app.client.call(name, here(".", request)));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field } });
  });

  test.each([
    { seconds: 0, nanos: 50_000_000 },
    { seconds: 3601, nanos: 0 },
    { seconds: -1, nanos: 0 },
  ])("a watch with the interval %j", async (interval) => {
    const failure = await failureOf(items("FileService/WatchDirectory", here(".", { interval })));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field: "interval" } });
  });

  test.each<[string, readonly Request[]]>([
    ["nothing", []],
    ["a chunk first", [{ chunk: Buffer.from("x") }]],
    ["an empty message first", [{}]],
    ["two headers", [{ header: {} }, { header: {} }]],
    ["an empty message", [{ header: {} }, {}]],
  ])("an upload of %s is out of order", async (_, requests) => {
    for (const name of ["UploadFile", "UploadArchive"] as const) {
      // An archive must go into an existing directory, because another error would come first.
      const path = name === "UploadArchive" ? "." : "x";
      const told = requests.map((request) =>
        "header" in request ? { header: { path, sandbox_id: sandboxId } } : request,
      );
      expect(await failureOf(app.client.upload(`FileService/${name}`, told))).toMatchObject({
        code: "INVALID_ARGUMENT",
      });
    }
    expect(await app.client.output(sandboxId, "ls -A x 2>/dev/null || true")).toBe("");
  });

  test("an upload that differs from its announced size", async () => {
    const failure = await failureOf(
      upload("FileService/UploadFile", here("sized", { size_bytes: 4 }), [Buffer.from("12345")]),
    );
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", metadata: { field: "size_bytes" } });
  });

  test("messages that are too large", async () => {
    const data = Buffer.alloc(8 * MIB + 1);
    const large = { code: "RESOURCE_EXHAUSTED", reason: "MESSAGE_TOO_LARGE" };
    expect(await failureOf(app.client.call("FileService/WriteFile", here("x", { data })))).toMatchObject(
      large,
    );
    expect(
      await failureOf(upload("FileService/UploadFile", here("x"), [data.subarray(0, MIB + 1)])),
    ).toMatchObject(large);
    expect(await failureOf(upload("FileService/UploadArchive", here("."), [data]))).toMatchObject(large);
  });

  test("a refused archive names its entry", async () => {
    const archive = makeTar([{ name: "../evil", content: "x" }]);
    expect(await failureOf(upload("FileService/UploadArchive", here("."), [archive]))).toMatchObject({
      code: "INVALID_ARGUMENT",
      reason: "ARCHIVE_REJECTED",
      metadata: { entry: "../evil" },
    });
  });

  test("sandboxes that are missing, not running, or of another generation", async () => {
    const { client } = app;
    expect(
      await failureOf(client.call("FileService/StatFile", { sandbox_id: "sbx_none", path: "." })),
    ).toMatchObject({ code: "NOT_FOUND", reason: "SANDBOX_NOT_FOUND" });
    expect(await failureOf(client.call("FileService/StatFile", here(".", { generation: 7 })))).toMatchObject({
      code: "FAILED_PRECONDITION",
      reason: "SANDBOX_REPLACED",
    });
    const { sandbox_id: other } = await client.createSandbox();
    await client.call("SandboxService/PauseSandbox", { sandbox_id: other });
    expect(
      await failureOf(client.call("FileService/StatFile", { sandbox_id: other, path: "." })),
    ).toMatchObject({ code: "FAILED_PRECONDITION", reason: "SANDBOX_NOT_RUNNING" });
    await client.deleteSandbox(other);
  });
});

test("a deleted sandbox ends the operations in it", async () => {
  const { sandbox_id: doomed } = await app.client.createSandbox();
  const watching = failureOf(items("FileService/WatchDirectory", { sandbox_id: doomed, path: "." }));
  await eventually(async () => (await app.client.getSandbox(doomed)).active_operations === 1);
  await app.client.call("SandboxService/DeleteSandbox", {
    sandbox_id: doomed,
    grace: { seconds: 0, nanos: 1 },
  });
  expect(await watching).toMatchObject({ code: "ABORTED", reason: "SANDBOX_DELETED" });
});
