import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { WatchDirectoryRequestSchema } from "../../../gen/ts/berth/v1/file_pb.js";
import { FileHandler, type FileHandlerParts } from "../../../src/rpc/file-service.ts";

test("the first message of a watch is that it has started, however long the first scan takes", async () => {
  const scanned = Promise.withResolvers<void>();
  async function* watch() {
    await scanned.promise;
    yield { type: "started", entryCount: 3 };
    await new Promise(() => {});
  }
  const handler = new FileHandler({ files: { watch }, keepaliveMs: 1 } as unknown as FileHandlerParts);
  const context = { values: createContextValues(), signal: new AbortController().signal } as HandlerContext;
  const request = create(WatchDirectoryRequestSchema, { sandboxId: "sbx", path: "/" });
  const items = handler.watchDirectory(request, context);
  const first = items.next();
  await sleep(20);
  scanned.resolve();
  expect((await first).value).toMatchObject({ item: { case: "started", value: { entryCount: 3n } } });
  expect((await items.next()).value).toMatchObject({ item: { case: "keepalive" } });
  await items.return(undefined);
});
