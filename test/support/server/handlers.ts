import { setTimeout as sleep } from "node:timers/promises";
import type { HandlerContext } from "@connectrpc/connect";
import { ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { abortError, BerthError, type ErrorReason, throwIfAborted } from "../../../src/base/errors.ts";
import { ownerKey } from "../../../src/server/call.ts";
import type { Routes } from "../../../src/server/routes.ts";
import { uploadMethod } from "./upload-service.ts";

/** What happened to the handlers of {@link testRoutes}. */
export class HandlerRecord {
  /** Generators that have started and have not run their `finally`. */
  open = 0;
  /** How often a generator started. */
  begun = 0;
  /** Messages that streams yielded. */
  produced = 0;
  /** Unary calls that reached their handler. */
  unary = 0;
  /** The abort reason of the last call that waited for its signal. */
  abortReason: unknown;
  /** Owner of the last unary call. */
  owner = "";
  /** Bytes that the upload received before it ended, successfully or not. */
  uploaded = 0;
  uploadError: unknown;
  /** Resolve it to let the handlers end that ignore everything else. */
  readonly letGo = Promise.withResolvers<void>();
}

/** A sentence that no client may ever see. */
export const SECRET = "secret at /etc/berth/tokens";

/**
 * Handlers that follow instructions, and record what they do. `GetStats` follows the header `x-test`, `Exec` the field
 * `shell`.
 */
export function testRoutes(record: HandlerRecord): Routes {
  async function obey(context: HandlerContext): Promise<void> {
    const [verb, argument = ""] = (context.requestHeader.get("x-test") ?? "").split(" ");
    if (verb === "fail") throw berthError(argument);
    if (verb === "refuse") {
      const path = Buffer.from(argument, "base64").toString();
      const metadata = { path, field: "path", limit: "10", directory: path };
      throw new BerthError("FILE_NOT_FOUND", `"${path}": there is no such file.`, { metadata });
    }
    if (verb === "crash") throw new Error(SECRET);
    if (verb === "sleep") await sleep(Number(argument), undefined, { signal: context.signal });
    if (verb === "hang") await aborted(context.signal, record);
    if (verb === "method") context.responseHeader.set("x-method", context.requestMethod);
    if (verb === "ignore") await record.letGo.promise;
    if (verb === "header") {
      context.responseHeader.set("x-answer", argument);
      context.responseTrailer.set("x-last", argument);
    }
  }
  return (router) => {
    router.service(SandboxService, {
      async getStats(_request, context) {
        record.unary += 1;
        record.owner = context.values.get(ownerKey);
        await obey(context);
        return { totalSandboxes: 3, maxSandboxes: 100 };
      },
      getSandbox: ({ sandboxId }) => ({ sandbox: { sandboxId: String(sandboxId.length) } }),
      async *watchEvents(_request, { signal }) {
        record.begun += 1;
        record.open += 1;
        try {
          yield { item: { case: "keepalive", value: {} } };
          await aborted(signal, record);
        } finally {
          record.open -= 1;
        }
      },
    });
    router.service(ProcessService, {
      async *exec({ command }, { signal }) {
        const [verb, argument = "0"] = String(command.value ?? "").split(" ");
        record.begun += 1;
        record.open += 1;
        try {
          if (verb === "refuse") throw berthError(argument);
          yield { event: { case: "started", value: { processId: "prc_1" } } };
          if (verb === "fail") throw berthError(argument);
          if (verb === "crash") throw new Error(SECRET);
          if (verb === "hang") await aborted(signal, record);
          if (verb === "ignore") await record.letGo.promise;
          const data = new Uint8Array(verb === "flood" || verb === "pour" ? 65_536 : 10).fill(120);
          const count = verb === "flood" ? Number.POSITIVE_INFINITY : Number(argument);
          for (let index = 0; index < count; index++) {
            record.produced += 1;
            yield { event: { case: "output", value: { offset: BigInt(index * data.length), data } } };
            if (verb === "drip") await sleep(10, undefined, { signal });
          }
          yield { event: { case: "exited", value: { exitCode: 7 } } };
        } finally {
          record.open -= 1;
        }
      },
    });
    router.rpc(uploadMethod, async (requests, context) => {
      record.uploaded = 0;
      try {
        const messages = requests[Symbol.asyncIterator]();
        for (let next = await messages.next(); !next.done; next = await messages.next()) {
          record.uploaded += next.value.value.length;
          // A failure here leaves the rest unread, and the iterator open.
          await obey(context);
        }
      } catch (error) {
        record.uploadError = error;
        throw error;
      }
      return { value: BigInt(record.uploaded) };
    });
  };
}

function berthError(reason: string): BerthError {
  return new BerthError(reason as ErrorReason, `failed: ${reason}`, {
    metadata: { sandbox_id: "sbx_1" },
    retryAfterMs: 1500,
    cause: new Error(SECRET),
  });
}

async function aborted(signal: AbortSignal, record: HandlerRecord): Promise<void> {
  throwIfAborted(signal);
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  record.abortReason = signal.reason;
  throw abortError(signal);
}
