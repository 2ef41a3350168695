import type { DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import { Health } from "../../gen/ts/grpc/health/v1/health_pb.js";
import { ServerReflection } from "../../gen/ts/grpc/reflection/v1/reflection_pb.js";
import { ServerReflection as ServerReflectionAlpha } from "../../gen/ts/grpc/reflection/v1alpha/reflection_pb.js";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { type Authenticator, callOf, ownerKey, type Principal, RefusedCaller } from "./call.ts";
import type { ErrorConverter } from "./error-conversion.ts";
import type { FairQueue } from "./fair-queue.ts";

/** Runs before a request's body is read. Throws a converted error to refuse the call. */
export type Admit = (context: HandlerContext) => Promise<void>;

/** Services open to everyone: the health checks of probes and load balancers reveal nothing about any tenant. */
const OPEN: ReadonlySet<string> = new Set([Health.typeName]);
/** Services whose methods every authenticated caller may use, whatever their options say. */
const FOR_EVERY_SCOPE: ReadonlySet<string> = new Set([
  ServerReflection.typeName,
  ServerReflectionAlpha.typeName,
]);

/** Authenticates calls, checks the scope of their tokens, queues them fairly, and passes their owner on to handlers. */
export function createAdmission(
  authenticator: Authenticator,
  errors: ErrorConverter,
  queue: FairQueue | undefined,
): Admit {
  return async (context) => {
    const call = callOf(context);
    try {
      throwIfAborted(call.signal);
      if (!OPEN.has(context.method.parent.typeName)) {
        call.principal = await authenticator.authenticate(call);
        context.values.set(ownerKey, call.owner);
        assertInScope(context.method, call.principal);
      }
      if (call.versionError) throw call.versionError;
      if (call.deadline.kind === "refused") throw call.deadline.error;
      await queue?.enter(call);
      call.admitted();
    } catch (thrown) {
      if (thrown instanceof RefusedCaller) call.principal = thrown.principal;
      throw errors.fromHandler(call, thrown, call.signal);
    }
  };
}

/** Whether a method may change something, so that read-only tokens may not call it. */
export function changesSomething({ idempotency, parent }: DescMethod): boolean {
  if (OPEN.has(parent.typeName) || FOR_EVERY_SCOPE.has(parent.typeName)) return false;
  return idempotency !== Idempotency.NO_SIDE_EFFECTS;
}

function assertInScope(method: DescMethod, { scope }: Principal): void {
  if (scope !== "read-only" || !changesSomething(method)) return;
  throw new BerthError(
    "TOKEN_SCOPE",
    `The token is read-only, and ${method.name} changes something. Use a token of scope user.`,
    { metadata: { scope, required_scope: "user" } },
  );
}
