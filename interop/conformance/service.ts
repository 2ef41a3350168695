import { setTimeout as sleep } from "node:timers/promises";
import { create, type Message } from "@bufbuild/protobuf";
import { type Any, anyPack } from "@bufbuild/protobuf/wkt";
import { type Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import type { Routes } from "../../src/server/routes.ts";
import {
  conformanceService,
  type Definition,
  messageType,
  registry,
  type StreamDefinition,
  type UnaryDefinition,
} from "./messages.ts";

type Request<D> = Message & { readonly responseDefinition?: D };
type BidiRequest = Request<StreamDefinition> & { readonly fullDuplex: boolean };
interface Payload {
  readonly data?: Uint8Array;
  readonly requestInfo?: Message;
}

/** The service that the conformance suite calls: handlers that answer as each request says. */
export const conformanceRoutes: Routes = (router) => {
  const implementation = {
    unary: (request: Request<UnaryDefinition>, context: HandlerContext) =>
      answer(context, [request], request.responseDefinition),
    idempotentUnary: (request: Request<UnaryDefinition>, context: HandlerContext) =>
      answer(context, [request], request.responseDefinition),
    async clientStream(requests: AsyncIterable<Request<UnaryDefinition>>, context: HandlerContext) {
      const all: Request<UnaryDefinition>[] = [];
      for await (const request of requests) all.push(request);
      return answer(context, all, all[0]?.responseDefinition);
    },
    serverStream: (request: Request<StreamDefinition>, context: HandlerContext) =>
      answers(context, request.responseDefinition, [request]),
    bidiStream,
  };
  router.service(
    conformanceService(),
    implementation as unknown as Partial<ServiceImpl<ReturnType<typeof conformanceService>>>,
    {
      jsonOptions: { registry },
    },
  );
};

async function answer(context: HandlerContext, requests: readonly Message[], definition?: UnaryDefinition) {
  setMetadata(context, definition);
  await sleep(definition?.responseDelayMs ?? 0);
  const requestInfo = infoOf(context, requests);
  if (definition?.response.case === "error") throw failure(definition.response.value, requestInfo);
  const data = definition?.response.case === "responseData" ? definition.response.value : undefined;
  return { payload: { data, requestInfo } };
}

/** Sends what is left to send, then the error if there is one; `sent` messages have gone out before. */
async function* answers(
  context: HandlerContext,
  definition: StreamDefinition | undefined,
  requests: readonly Message[],
  sent = 0,
): AsyncGenerator<{ payload: Payload }> {
  if (sent === 0) setMetadata(context, definition);
  for (const [index, data] of (definition?.responseData ?? []).slice(sent).entries()) {
    await sleep(definition?.responseDelayMs ?? 0);
    const first = sent + index === 0;
    yield { payload: { data, ...(first && { requestInfo: infoOf(context, requests) }) } };
  }
  if (definition?.error === undefined) return;
  const nothing = definition.responseData.length === 0;
  throw failure(definition.error, nothing ? infoOf(context, requests) : undefined);
}

async function* bidiStream(requests: AsyncIterable<BidiRequest>, context: HandlerContext) {
  let first: BidiRequest | undefined;
  let sent = 0;
  let unanswered: Message[] = [];
  for await (const request of requests) {
    first ??= request;
    unanswered.push(request);
    if (!first.fullDuplex) continue;
    const definition = first.responseDefinition;
    const data = definition?.responseData[sent];
    if (data === undefined) break;
    if (sent === 0) setMetadata(context, definition);
    await sleep(definition?.responseDelayMs ?? 0);
    const requestInfo =
      sent === 0
        ? infoOf(context, unanswered)
        : create(messageType(INFO), { requests: unanswered.map(pack) });
    yield { payload: { data, requestInfo } };
    sent += 1;
    unanswered = [];
  }
  yield* answers(context, first?.responseDefinition, unanswered, sent);
}

function setMetadata({ responseHeader, responseTrailer }: HandlerContext, definition?: Definition): void {
  for (const { name, value } of definition?.responseHeaders ?? []) {
    for (const one of value) responseHeader.append(name, one);
  }
  for (const { name, value } of definition?.responseTrailers ?? []) {
    for (const one of value) responseTrailer.append(name, one);
  }
}

const INFO = "ConformancePayload.RequestInfo";

/** What a handler saw of a call. */
function infoOf(context: HandlerContext, requests: readonly Message[]): Message {
  const timeoutMs = context.timeoutMs();
  const pairs = (entries: Iterable<[string, string]>) =>
    [...entries].map(([name, value]) => ({ name, value: [value] }));
  return create(messageType(INFO), {
    requestHeaders: pairs(context.requestHeader),
    timeoutMs: timeoutMs === undefined ? undefined : BigInt(Math.floor(timeoutMs)),
    requests: requests.map(pack),
    connectGetInfo:
      context.requestMethod === "GET" ? { queryParams: pairs(new URL(context.url).searchParams) } : undefined,
  });
}

function pack(message: Message): Any {
  const desc = registry.getMessage(message.$typeName);
  if (!desc) throw new Error(`unknown message ${message.$typeName}`);
  return anyPack(desc, message);
}

function failure(
  { code, message = "", details }: { code: Code; message?: string; details: readonly Any[] },
  info?: Message,
) {
  const error = new ConnectError(message, code);
  for (const { typeUrl, value } of info ? [...details, pack(info)] : details) {
    error.details.push({ type: typeUrl.slice(typeUrl.lastIndexOf("/") + 1), value });
  }
  return error;
}
