import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { HandlerContext } from "@connectrpc/connect";
import { BerthError } from "../../../src/base/errors.ts";
import { berthRoutes } from "../../../src/rpc/routes.ts";
import { Call, ownerKey } from "../../../src/server/call.ts";
import { CallContext } from "../../../src/server/call-context.ts";
import { ErrorConverter } from "../../../src/server/error-conversion.ts";
import { DEFAULT_LIMITS } from "../../../src/server/limits.ts";
import { type Route, RouteTable } from "../../../src/server/routes.ts";
import { MemoryLog } from "../memory-log.ts";

/** The reason of the closed door's refusals, which no validation uses. */
export const BEHIND = "ENGINE_UNAVAILABLE";

/**
 * What is behind the handlers: a door that stays closed. It refuses everything, so that a request goes through all
 * validation and conversion and does nothing.
 */
const door: unknown = new Proxy(() => {}, {
  get: (_target, name) => (name === "then" || typeof name === "symbol" ? undefined : door),
  apply: () => {
    throw new BerthError(BEHIND, "Nothing is behind this door.");
  },
});

/** The real handlers of all methods, in front of the closed door. */
export function handlersBeforeDoor(): Route[] {
  const table = new RouteTable({
    limits: DEFAULT_LIMITS,
    errors: new ErrorConverter(new MemoryLog()),
    admit: async () => {},
  });
  berthRoutes(door as Parameters<typeof berthRoutes>[0])(table);
  return table.services.flatMap((service) =>
    service.methods.flatMap((method) => table.find(`/${service.typeName}/${method.name}`) ?? []),
  );
}

/** Gives a handler a message. Returns its refusal. Throws anything that is not a refusal. */
export async function refusalOf(route: Route, message: never): Promise<BerthError | undefined> {
  const { spec } = route;
  const context = contextOf(route);
  try {
    if (spec.kind === "unary") await spec.impl(message, context);
    else if (spec.kind === "server_streaming") for await (const _ of spec.impl(message, context)) break;
    else if (spec.kind === "client_streaming") await spec.impl(one(message), context);
    else for await (const _ of spec.impl(one(message), context)) break;
    return undefined;
  } catch (error) {
    if (error instanceof BerthError && error.reason !== "INTERNAL") return error;
    throw error;
  }
}

async function* one<T>(message: T): AsyncGenerator<T> {
  yield message;
}

/** Nothing is read from it. */
const socket = new Socket();

function contextOf({ name, method }: Route): HandlerContext {
  const request = new IncomingMessage(socket);
  request.method = "POST";
  const call = new Call({ method: name, protocol: "grpc", request, streamsRequests: false, changes: false });
  call.principal = { owner: "acme", tenant: "acme", tokenId: undefined, tokenHash: undefined, scope: "user" };
  const context = new CallContext(method, call, request);
  context.values.set(ownerKey, "acme");
  return context;
}
