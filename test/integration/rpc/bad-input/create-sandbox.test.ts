import { describe, test } from "vitest";
import { failureOf, type Request } from "../../../support/client.ts";
import { MISSING_IMAGE } from "../../../support/images.ts";
import { seconds } from "../../../support/wire.ts";
import { check, type Refusal, requestOf, TOO_LONG, useUnharmed } from "./support.ts";

const { app } = useUnharmed();

describe("CreateSandbox refuses", () => {
  const spec = (
    because: string,
    says: string | RegExp,
    bad: Request,
    more: Partial<Refusal> = {},
  ): Refusal => ({
    because,
    says,
    request: { spec: bad },
    ...more,
  });
  const resource = (because: string, field: string, value: number): Refusal =>
    spec(because, `spec.resources.${field}`, { resources: { [field]: value } });
  const hostMount = (because: string, path: string, more: Partial<Refusal> = {}): Refusal =>
    spec(
      because,
      path,
      { mounts: [{ host_path: path, target: "/mnt" }] },
      {
        code: "PERMISSION_DENIED",
        reason: "NOT_ALLOWED",
        ...more,
      },
    );
  const target = (because: string, path: string): Refusal =>
    spec(because, "spec.mounts[0].target", { mounts: [{ host_path: "/tmp", target: path }] });
  const precondition = (reason: string): Partial<Refusal> => ({ code: "FAILED_PRECONDITION", reason });

  const cases: readonly Refusal[] = [
    spec("an unknown image", MISSING_IMAGE, { image: MISSING_IMAGE }, precondition("IMAGE_UNAVAILABLE")),
    spec("an image's name that is none", /image/i, { image: "Not An Image!" }, { code: undefined }),
    resource("negative memory", "memory_bytes", -1),
    resource("too little memory", "memory_bytes", 1),
    resource("more memory than there is", "memory_bytes", 2 ** 52),
    resource("negative CPU", "cpu_millis", -1),
    resource("more CPU than there is", "cpu_millis", 2_000_000_000),
    resource("a negative number of processes", "pids_limit", -1),
    resource("a huge number of processes", "pids_limit", 2_000_000_000),
    resource("a negative disk", "disk_bytes", -1),
    resource("a huge disk", "disk_bytes", 2 ** 53),
    spec(
      "a disk bound here",
      "spec.resources.disk_bytes",
      { resources: { disk_bytes: 1e9 } },
      precondition("UNSUPPORTED"),
    ),
    spec("NUL in a variable's value", 'spec.env["A"]', { env: { A: "x\0y" } }),
    spec("NUL in a variable's name", "spec.env", { env: { "A\0B": "x" } }),
    spec("= in a variable's name", "spec.env", { env: { "A=B": "x" } }),
    spec("a variable without a name", "spec.env", { env: { "": "x" } }),
    spec("more variables than leave room for a command", "spec.env", {
      env: Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`V${i}`, "x".repeat(100_000)])),
    }),
    spec("a relative working directory", "spec.working_dir", { working_dir: "here" }),
    spec("a working directory with ..", "spec.working_dir", { working_dir: "/a/../../etc" }),
    spec("NUL in the working directory", "spec.working_dir", { working_dir: "/a\0b" }),
    spec("a reserved label", "spec.labels", { labels: { "berth.instance": "x" } }),
    spec("a label that is too long", "spec.labels", { labels: { ["x".repeat(64)]: "x" } }),
    spec("a negative idle timeout", "spec.idle_timeout", { idle_timeout: seconds(-1) }),
    spec("an idle timeout over 24 days", "spec.idle_timeout", { idle_timeout: TOO_LONG }),
    spec("an idle timeout of zero", "spec.idle_timeout", { idle_timeout: seconds(0) }),
    spec("a negative lifetime", "spec.max_lifetime", { max_lifetime: seconds(-0.5) }),
    spec("a lifetime over 24 days", "spec.max_lifetime", { max_lifetime: TOO_LONG }),
    spec("a command timeout over 24 days", "spec.command_timeout", { command_timeout: TOO_LONG }),
    spec("a duration whose parts disagree", "spec.command_timeout", {
      command_timeout: { seconds: 1, nanos: 2_000_000_000 },
    }),
    spec(
      "a runtime that is not allowed",
      "runtime",
      { runtime: "kata" },
      { code: "PERMISSION_DENIED", reason: "NOT_ALLOWED" },
    ),
    spec(
      "a runtime with a name that every object inherits",
      "runtime",
      { runtime: "constructor" },
      { code: "PERMISSION_DENIED", reason: "NOT_ALLOWED" },
    ),
    spec("a network that does not exist", "spec.network.mode", { network: { mode: 77 } }),
    hostMount("the host's root", "/"),
    hostMount("a host path that is not allowed", "/etc"),
    hostMount("the Docker socket", "/var/run/docker.sock"),
    hostMount("the directory of the Docker socket", "/var/run"),
    hostMount("a host path with ..", "/tmp/../etc", {
      code: undefined,
      reason: undefined,
      says: "spec.mounts[0].host_path",
    }),
    hostMount("a relative host path", "tmp", {
      code: undefined,
      reason: undefined,
      says: "spec.mounts[0].host_path",
    }),
    target("a relative target", "mnt"),
    target("a target with ..", "/mnt/../etc"),
    target("the root as target", "/"),
    spec("a mount without a source", "spec.mounts[0]", { mounts: [{ target: "/mnt" }] }),
    spec(
      "an unknown workspace",
      /workspace/,
      { mounts: [{ workspace_id: "w", target: "/mnt" }] },
      { code: "NOT_FOUND", reason: "WORKSPACE_NOT_FOUND" },
    ),
    spec("a user that the image does not have", "user", { user: "nobody-of-that-name" }),
    { because: "a control character in the id", request: { sandbox_id: "a\nb" }, says: "sandbox_id" },
    { because: "an id that is too long", request: { sandbox_id: "x".repeat(257) }, says: "sandbox_id" },
    {
      because: "a request id that is too long",
      request: { request_id: "x".repeat(257) },
      says: "request_id",
    },
  ];

  for (const refusal of cases) {
    test(refusal.because, async () => {
      check(await failureOf(app.client.call("SandboxService/CreateSandbox", requestOf(refusal))), refusal);
    });
  }
});
