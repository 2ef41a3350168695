import { Code, ConnectError, type HandlerContext, type MethodImplSpec } from "@connectrpc/connect";
import { untilAborted } from "../base/async.ts";
import { abortError } from "../base/errors.ts";
import { callOf } from "./call.ts";
import { type ErrorConverter, requestError } from "./error-conversion.ts";

/**
 * Wraps the implementation of a method. Whatever it throws, at once or while streaming, leaves as a converted error. A
 * call that is over ends for its client even if the implementation has not noticed. Unreadable requests reach a
 * streaming implementation as `BerthError`.
 */
export function withErrorBoundary(
  spec: MethodImplSpec,
  errors: ErrorConverter,
  readMaxBytes: number,
): MethodImplSpec {
  const reach = (context: HandlerContext) => {
    const call = callOf(context);
    call.handlerReached = true;
    return call;
  };
  const single = async <T>(context: HandlerContext, run: () => T | Promise<T>): Promise<T> => {
    const call = reach(context);
    try {
      return await untilAborted(Promise.resolve(run()), context.signal);
    } catch (thrown) {
      throw errors.fromHandler(call, thrown, context.signal);
    }
  };
  async function* stream<T>(context: HandlerContext, run: () => AsyncIterable<T>): AsyncGenerator<T> {
    const call = reach(context);
    let iterator: AsyncIterator<T> | undefined;
    try {
      iterator = run()[Symbol.asyncIterator]();
      for (;;) {
        const result = await untilAborted(iterator.next(), context.signal);
        if (result.done) return;
        yield result.value;
      }
    } catch (thrown) {
      throw errors.fromHandler(call, thrown, context.signal);
    } finally {
      // Not awaited: a stuck source must not delay the end of the call.
      void iterator?.return?.()?.catch((thrown: unknown) => errors.fromHandler(call, thrown, context.signal));
    }
  }
  async function* readable<T>(context: HandlerContext, requests: AsyncIterable<T>): AsyncGenerator<T> {
    try {
      yield* requests;
    } catch (thrown) {
      if (context.signal.aborted) throw abortError(context.signal);
      const { failure } = callOf(context);
      if (failure !== undefined && thrown === failure.error) throw failure.cause;
      throw requestError(thrown, readMaxBytes);
    }
  }
  switch (spec.kind) {
    case "unary": {
      const impl: typeof spec.impl = (request, context) => single(context, () => spec.impl(request, context));
      return { ...spec, impl };
    }
    case "server_streaming": {
      const impl: typeof spec.impl = (request, context) => stream(context, () => spec.impl(request, context));
      return { ...spec, impl };
    }
    case "client_streaming": {
      const impl: typeof spec.impl = (requests, context) =>
        single(context, () => spec.impl(readable(context, requests), context));
      return { ...spec, impl };
    }
    case "bidi_streaming": {
      const impl: typeof spec.impl = (requests, context) =>
        stream(context, () => spec.impl(readable(context, requests), context));
      return { ...spec, impl };
    }
  }
}

/**
 * Adds code and detail to an error that the library itself raised, outside any implementation. In every protocol the
 * library aborts the call's signal with the error that it is about to send, so the abort is the last chance to amend
 * it.
 */
export function amendLibraryErrors(
  context: HandlerContext,
  errors: ErrorConverter,
  readMaxBytes: number,
): void {
  const call = callOf(context);
  context.signal.addEventListener(
    "abort",
    () => {
      const raised: unknown = context.signal.reason;
      if (!(raised instanceof ConnectError) || raised === call.failure?.error) return;
      const ownFault = call.handlerReached && raised.code === Code.Internal;
      const { code, message, rawMessage, details } = ownFault
        ? errors.fromHandler(call, raised, call.signal)
        : errors.fromRequest(call, raised, readMaxBytes);
      Object.assign(raised, { code, message, rawMessage, details });
    },
    { once: true },
  );
}
