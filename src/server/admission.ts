import type { HandlerContext } from "@connectrpc/connect";
import { throwIfAborted } from "../base/errors.ts";
import type { Authenticator } from "./call.ts";
import { callOf, ownerKey } from "./call.ts";
import type { ErrorConverter } from "./error-conversion.ts";

/** Runs before a request's body is read, and refuses the call by throwing a converted error. */
export type Admit = (context: HandlerContext) => Promise<void>;

/** Admits the calls that the authenticator knows, and passes their owner on to handlers. */
export function createAdmission(authenticator: Authenticator, errors: ErrorConverter): Admit {
  return async (context) => {
    const call = callOf(context);
    try {
      throwIfAborted(call.signal);
      if (call.deadline.kind === "refused") throw call.deadline.error;
      call.owner = await authenticator.authenticate(call);
      context.values.set(ownerKey, call.owner);
    } catch (thrown) {
      throw errors.fromHandler(call, thrown, call.signal);
    }
  };
}
