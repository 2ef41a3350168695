import type { RequestProgress } from "../../src/state/request-log.ts";

/** A request: returns its progress, each time as its retry finds it after a crash of the service. */
export function repeatableRequest(): () => RequestProgress {
  let subject: string | undefined;
  return () => ({
    subject,
    begin: (next) => {
      subject = next;
    },
  });
}
