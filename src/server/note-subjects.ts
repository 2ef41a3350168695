import type { MethodImplSpec } from "@connectrpc/connect";
import { callOf } from "./call.ts";

type Context = Parameters<MethodImplSpec["impl"]>[1];

/** Wraps a method, so that audited calls collect the ids in their first request and first response. */
export function withSubjects(spec: MethodImplSpec): MethodImplSpec {
  const { input, output } = spec.method;
  const ask = <T>(request: T, context: Context): T => {
    callOf(context).subjects?.add(input, request);
    return request;
  };
  const askFirst = <T>(requests: AsyncIterable<T>, context: Context): AsyncIterable<T> =>
    callOf(context).subjects === undefined
      ? requests
      : tapFirst(requests, (request) => ask(request, context));
  const answer = <T>(message: T, context: Context): T => {
    const { subjects, changes } = callOf(context);
    // The response names what the call created. A read does not act on what it returns.
    if (changes) subjects?.add(output, message);
    return message;
  };
  const answerFirst = <T>(answers: AsyncIterable<T>, context: Context): AsyncIterable<T> =>
    callOf(context).subjects === undefined
      ? answers
      : tapFirst(answers, (message) => answer(message, context));
  switch (spec.kind) {
    case "unary": {
      const impl: typeof spec.impl = async (request, context) =>
        answer(await spec.impl(ask(request, context), context), context);
      return { ...spec, impl };
    }
    case "server_streaming": {
      const impl: typeof spec.impl = (request, context) =>
        answerFirst(spec.impl(ask(request, context), context), context);
      return { ...spec, impl };
    }
    case "client_streaming": {
      const impl: typeof spec.impl = async (requests, context) =>
        answer(await spec.impl(askFirst(requests, context), context), context);
      return { ...spec, impl };
    }
    case "bidi_streaming": {
      const impl: typeof spec.impl = (requests, context) =>
        answerFirst(spec.impl(askFirst(requests, context), context), context);
      return { ...spec, impl };
    }
  }
}

/** The same items. Passes the first one to `tap`; the others cost nothing extra. */
function tapFirst<T>(items: AsyncIterable<T>, tap: (item: T) => void): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const iterator = items[Symbol.asyncIterator]();
      let next = async (): Promise<IteratorResult<T>> => {
        next = () => iterator.next();
        const first = await iterator.next();
        if (!first.done) tap(first.value);
        return first;
      };
      return {
        next: () => next(),
        return: (value) => iterator.return?.(value) ?? Promise.resolve({ done: true, value }),
        throw: (error) => iterator.throw?.(error) ?? Promise.reject(error),
      };
    },
  };
}
