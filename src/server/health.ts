import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
} from "../../gen/ts/grpc/health/v1/health_pb.js";
import { throwIfAborted } from "../base/errors.ts";

/** Says whether the service can do its work. */
export interface HealthSource {
  isServing(): boolean;
  /** Why it is not serving, in one sentence for the operator. Only called while it is not. */
  reason(): string;
  /** A problem despite which it is serving, in one sentence. Undefined: none. */
  warning(): string | undefined;
  /**
   * Calls back after every change.
   *
   * @returns a function that stops this
   */
  onChange(changed: () => void): () => void;
}

export const alwaysServing: HealthSource = {
  isServing: () => true,
  reason: () => "",
  warning: () => undefined,
  onChange: () => () => {},
};

/**
 * Registers `grpc.health.v1.Health`. All services have the same status.
 *
 * @param names the known services, besides `""`, which means the whole server
 */
export function registerHealth(router: ConnectRouter, source: HealthSource, names: readonly string[]): void {
  const known = new Set(["", ...names]);
  const status = () => (source.isServing() ? Status.SERVING : Status.NOT_SERVING);
  router.service(Health, {
    check: ({ service }) => {
      if (!known.has(service)) throw new ConnectError(`no service "${service}"`, Code.NotFound);
      return { status: status() };
    },
    list: () => ({ statuses: Object.fromEntries(Array.from(known, (name) => [name, { status: status() }])) }),
    async *watch({ service }, { signal }) {
      let wake = () => {};
      const stop = source.onChange(() => wake());
      const onAbort = () => wake();
      signal.addEventListener("abort", onAbort);
      try {
        let last: Status | undefined;
        while (!signal.aborted) {
          const now = known.has(service) ? status() : Status.SERVICE_UNKNOWN;
          if (now !== last) yield { status: now };
          else await new Promise<void>((resolve) => (wake = resolve));
          last = now;
        }
        throwIfAborted(signal);
      } finally {
        stop();
        signal.removeEventListener("abort", onAbort);
      }
    },
  });
}
