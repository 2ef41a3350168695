import { describe, expect, test } from "vitest";
import { BerthError } from "../../../../src/base/errors.ts";
import {
  ApiError,
  isRefusal,
  NoAnswerError,
  translateError,
} from "../../../../src/engine/kubernetes/errors.ts";

const status = (reason: string, message: string): string =>
  JSON.stringify({ kind: "Status", reason, message });
const refusal = (code: number, message: string, reason = ""): BerthError =>
  translateError(ApiError.of(code, status(reason, message)), "creating a pod");

describe("what the API server refuses", () => {
  test.each([
    [404, 'pods "berth-x" not found', "SANDBOX_TERMINATED"],
    [404, 'namespaces "berth-sandboxes" not found', "ENGINE_UNAVAILABLE"],
    [400, "cannot exec into a container in a completed pod; current phase is Failed", "SANDBOX_TERMINATED"],
    [401, "Unauthorized", "ENGINE_UNAVAILABLE"],
    [
      403,
      'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
      "NOT_ALLOWED",
    ],
    [
      403,
      'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2',
      "SANDBOX_LIMIT",
    ],
    [403, 'pods "x" is forbidden: pod rejected: RuntimeClass "none" not found', "UNSUPPORTED"],
    [403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""', "ENGINE_UNAVAILABLE"],
    [403, "pods is forbidden: admission webhook said no", "NOT_ALLOWED"],
    [
      422,
      "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'teams' with binding 'teams' denied request: no team",
      "NOT_ALLOWED",
    ],
    [400, 'admission webhook "teams.example" denied the request: no team', "NOT_ALLOWED"],
    [422, 'Pod "x" is invalid: spec.containers[0].resources.limits: Invalid value', "INVALID_ARGUMENT"],
    [429, "too many requests", "TOO_MANY_OPERATIONS"],
    [500, "etcdserver: leader changed", "ENGINE_UNAVAILABLE"],
  ])("%i %j is %s, in its words", (code, message, reason) => {
    const error = refusal(code, message);
    expect(error.reason).toBe(reason);
    if (reason !== "SANDBOX_TERMINATED") expect(error.message).toContain(message);
  });

  test("because a quota demands a limit that sandboxes lack is nothing to wait for", () => {
    const message =
      'pods "x" is forbidden: failed quota: disk: must specify limits.ephemeral-storage for: main';
    expect(refusal(403, message)).toMatchObject({ reason: "NOT_ALLOWED", retryAfterMs: undefined });
  });

  test("because it is too large is the caller's mistake, not the engine's", () => {
    for (const [code, message] of [
      [413, "Request entity too large: limit is 3145728"],
      [500, "etcdserver: request is too large"],
    ] as const)
      expect(refusal(code, message)).toMatchObject({
        reason: "INVALID_ARGUMENT",
        message: expect.stringContaining(message),
      });
  });

  test("keeps its status, through the translation too", () => {
    expect(isRefusal(refusal(410, "too old resource version"), 410)).toBe(true);
    expect(isRefusal(refusal(410, "too old resource version"), 404)).toBe(false);
    expect(isRefusal(new Error("other"), 404)).toBe(false);
  });

  test("is quoted if it is not an answer of the API, but never at length", () => {
    expect(ApiError.of(502, "<html>bad gateway</html>")).toMatchObject({
      status: 502,
      reason: "",
      message: "<html>bad gateway</html>",
    });
    expect(refusal(500, "x".repeat(10_000)).message.length).toBeLessThan(700);
  });
});

describe("what keeps it from answering", () => {
  const coded = (code: string): Error => Object.assign(new Error(code), { code });
  test.each([
    [new NoAnswerError(), /did not answer in time while creating a pod/],
    [coded("ECONNREFUSED"), /refuses connections/],
    [coded("ENOTFOUND"), /ENOTFOUND.*kubeconfig/],
    [coded("DEPTH_ZERO_SELF_SIGNED_CERT"), /not trusted/],
    [coded("ECONNRESET"), /broke while creating a pod/],
  ])("%o says what to look at", (cause, words) => {
    const error = translateError(cause, "creating a pod");
    expect(error).toMatchObject({ reason: "ENGINE_UNAVAILABLE", retryAfterMs: 1000, cause });
    expect(error.message).toMatch(words);
  });

  test("a caller that canceled gets its own reason", () => {
    const reason = new BerthError("DEADLINE_EXCEEDED", "too late");
    expect(translateError(coded("ABORT_ERR"), "listing", AbortSignal.abort(reason))).toBe(reason);
  });
});
