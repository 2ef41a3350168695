import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { expectContainers, type TestApp, useApp } from "../../../support/app.ts";
import type { Failure, Request } from "../../../support/client.ts";
import { seconds } from "../../../support/wire.ts";

export const MIB = 1024 * 1024;
export const TOO_LONG = { seconds: 24 * 86_400 + 1, nanos: 0 };

/** A service with one sandbox that every call may name. After each refusal it works as before, and has nothing new. */
export function useUnharmed(): { readonly app: TestApp; readonly id: string } {
  const app = useApp({ maxSandboxes: 2 });
  let id = "";
  beforeAll(async () => {
    ({ sandbox_id: id } = await app.client.createSandbox());
  });
  afterAll(async () => {
    await app.client.call("SandboxService/DeleteSandbox", { sandbox_id: id, grace: seconds(0) });
  });
  afterEach(async () => {
    expect(await app.client.output(id, "echo fine")).toBe("fine\n");
    expect(await app.client.call("SandboxService/GetStats")).toMatchObject({ total_sandboxes: 1 });
    await expectContainers(app.instance, 1);
  });
  return {
    app,
    get id() {
      return id;
    },
  };
}

/** A request that is refused, and its error. */
export interface Refusal {
  readonly because: string;
  readonly request: Request | (() => Request);
  readonly code?: string;
  readonly reason?: string;
  /** What the message must contain: the field, or what to change. */
  readonly says: string | RegExp;
}

export function check(failure: Failure, { code, reason, says }: Omit<Refusal, "because" | "request">): void {
  expect(failure).toMatchObject({
    code: code ?? "INVALID_ARGUMENT",
    reason: reason ?? code ?? "INVALID_ARGUMENT",
    message: typeof says === "string" ? expect.stringContaining(says) : expect.stringMatching(says),
  });
  expect(failure.message).not.toMatch(/\bat \S+ \(|node_modules|\/src\//);
}

export function requestOf({ request }: Refusal): Request {
  return typeof request === "function" ? request() : request;
}
