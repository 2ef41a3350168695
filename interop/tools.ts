import { existsSync } from "node:fs";
import path from "node:path";
import { fromBinary, fromJson, type JsonObject } from "@bufbuild/protobuf";
import { ErrorDetailSchema } from "../gen/ts/berth/v1/error_pb.js";
import { PARALLEL, type Result, sha256, type Task } from "./cells.ts";
import type { InteropClient, PrepareOptions, ReadyClient, Target } from "./client.ts";
import { type Finished, GO_ENVIRONMENT, must, needs, needsGo, ROOT, run } from "./run.ts";

/** A call as a command line makes it. */
interface Call {
  readonly service: string;
  readonly method: string;
  readonly message: object;
  readonly deadlineMs?: number;
}

/** A program for one call at a time, and how its output is read. */
interface Tool {
  /** The command line of a call. */
  readonly command: (call: Call, target: Target) => readonly string[];
  /** The messages of an answer. */
  readonly messages: (finished: Finished) => readonly Message[];
  /** The error of an answer. */
  readonly error: (finished: Finished) => WireError | undefined;
}

/** A message of RunCommand or Exec, in JSON. */
interface Message {
  readonly stdout?: string;
  readonly exitStatus?: { readonly exitCode?: number };
  readonly output?: { readonly data: string };
  readonly exited?: { readonly exitCode?: number };
}

/** An error as these tools show it: its detail encoded in `value`, or as JSON. */
interface WireError {
  readonly code: string | number;
  readonly details?: readonly (JsonObject & { readonly value?: string })[];
}

const SANDBOXES = "berth.v1.SandboxService";
const PROCESSES = "berth.v1.ProcessService";

/** A client of a tool that makes one call a process. */
function client(version: string, tool: Tool, runAll = oneProcessEach): ReadyClient {
  return {
    version,
    async call({ cell, argument }, target) {
      const { sandboxId, signal } = target;
      const make = (call: Call, onOutput?: Parameters<typeof run>[2]["onOutput"]) => {
        const [file = "", ...args] = tool.command(call, target);
        return run(file, args, { signal, onOutput });
      };
      const command = { service: PROCESSES, message: { sandboxId, shell: argument } };
      switch (cell) {
        case "unary":
          return unary(tool.messages(await make({ ...command, method: "RunCommand" }))[0]);
        case "stream":
        case "12 MB":
          return stream(tool.messages(await make({ ...command, method: "Exec" })));
        case "reason": {
          const message = { sandboxId: argument };
          return reason(tool.error(await make({ service: SANDBOXES, method: "GetSandbox", message })));
        }
        case "deadline":
          return { code: codeOf(tool.error(await make({ ...command, method: "Exec", deadlineMs: 2000 }))) };
        case "cancel": {
          // To leave is to cancel.
          const started = { seen: false };
          const { exitCode } = await make({ ...command, method: "Exec" }, (_text, child) => {
            if (!started.seen) child.kill("SIGINT");
            started.seen = true;
          });
          return started.seen && exitCode !== 0 ? {} : { code: 0 };
        }
        case "100 in parallel": {
          const calls = Array.from({ length: PARALLEL }, (_, index) => ({
            ...command,
            method: "RunCommand",
            message: { sandboxId, shell: `${argument} ${index}` },
          }));
          return { outputs: await runAll(calls, tool, target) };
        }
      }
    },
  };
}

async function oneProcessEach(calls: readonly Call[], tool: Tool, target: Target): Promise<string[]> {
  const all = calls.map(async (call) => {
    const [file = "", ...args] = tool.command(call, target);
    return unary(tool.messages(await run(file, args, target))[0]).stdout ?? "";
  });
  return Promise.all(all);
}

function unary(answer: Message | undefined): Result {
  return { stdout: text(answer?.stdout), exitCode: answer?.exitStatus?.exitCode ?? 0 };
}

function stream(messages: readonly Message[]): Result {
  const data = Buffer.concat(messages.map(({ output }) => Buffer.from(output?.data ?? "", "base64")));
  const exited = messages.find((message) => message.exited)?.exited;
  return { bytes: data.length, sha256: sha256(data), exitCode: exited ? (exited.exitCode ?? 0) : undefined };
}

function reason(error: WireError | undefined): Result {
  const { value, "@type": _type, ...json } = error?.details?.[0] ?? {};
  const detail =
    value === undefined
      ? fromJson(ErrorDetailSchema, json)
      : fromBinary(ErrorDetailSchema, Buffer.from(value, "base64"));
  return { code: codeOf(error), reason: detail.reason, metadata: detail.metadata };
}

const CODES: Readonly<Record<string, number>> = { canceled: 1, deadline_exceeded: 4, not_found: 5 };

function codeOf(error: WireError | undefined): number | undefined {
  return typeof error?.code === "string" ? CODES[error.code] : error?.code;
}

const text = (base64 = "") => Buffer.from(base64, "base64").toString();

/** What of a text is JSON, a line each. */
function jsonLines<T>(output: string): T[] {
  return output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as T);
}

/** Messages of several lines each, as gRPC's tools print them. */
function printed({ stdout }: Finished): Message[] {
  return stdout
    .split(/(?<=^\})\n/m)
    .filter((one) => one.trim() !== "")
    .map((one) => JSON.parse(one) as Message);
}

/** The error that such a tool prints, after other words if any. */
function printedError({ stderr }: Finished): WireError {
  return JSON.parse(stderr.slice(stderr.indexOf("{"))) as WireError;
}

const isError = (message: Message | WireError): message is WireError => "code" in message;

const curlOptions = ({ message, deadlineMs }: Call): string[] => [
  ...["-H", "content-type: application/json", "--data-binary", JSON.stringify(message)],
  ...(deadlineMs === undefined ? [] : ["-H", `connect-timeout-ms: ${deadlineMs}`]),
];
const urlOf = ({ service, method }: Call, { address }: Target) => `http://${address}/${service}/${method}`;

const CURL: Tool = {
  command: (call, target) => ["curl", "-sS", "-N", ...curlOptions(call), urlOf(call, target)],
  messages: ({ stdout }) =>
    jsonLines<Message | WireError>(stdout).filter((line) => !isError(line)) as Message[],
  error: ({ stdout }) => jsonLines<Message | WireError>(stdout).find(isError),
};

/** curl makes many calls at once by itself. */
async function curlParallel(calls: readonly Call[], _tool: Tool, target: Target): Promise<string[]> {
  const parts = calls.map((call) => ["-sS", ...curlOptions(call), urlOf(call, target)]);
  const args = ["--parallel", "--parallel-immediate", "--parallel-max", "100"];
  for (const [index, part] of parts.entries()) args.push(...(index > 0 ? ["--next"] : []), ...part);
  const stdout = await must("curl", args, target);
  // Answers come in the order in which they are ready, with nothing between them.
  const answers = jsonLines<Message>(stdout.replaceAll("}{", "}\n{"));
  const outputs = answers.map((answer) => unary(answer).stdout ?? "");
  return outputs.sort((one, other) => Number(one) - Number(other));
}

const curl: InteropClient = {
  name: "curl",
  async prepare(options) {
    await needs("curl", "curl", options);
    const version = (await must("curl", ["--version"], options)).split(" ", 2).join(" ");
    return client(version, CURL, curlParallel);
  },
};

const bufCurl: InteropClient = {
  name: "buf curl",
  async prepare(options) {
    // The program itself: what npm puts in front of it passes no signals on.
    const { platform, arch } = process;
    const file = path.join(
      ROOT,
      `node_modules/@bufbuild/buf-${platform}-${arch === "arm64" ? "aarch64" : arch}/bin/buf`,
    );
    const version = await must(file, ["--version"], options);
    return client(`buf ${version.trim()}`, {
      command: (call, target) => [
        ...[file, "curl", "--protocol", "grpc", "--http2-prior-knowledge"],
        ...(call.deadlineMs === undefined ? [] : ["--timeout", `${call.deadlineMs}ms`]),
        ...["-d", JSON.stringify(call.message), urlOf(call, target)],
      ],
      messages: printed,
      error: printedError,
    });
  },
};

const GO_TOOLS = path.join(ROOT, ".cache/interop/bin");

async function goTool(module: string, name: string, options: PrepareOptions): Promise<string> {
  const program = path.join(GO_TOOLS, name);
  if (existsSync(program)) return program;
  await needsGo(options);
  const env = { GOBIN: GO_TOOLS, ...GO_ENVIRONMENT };
  await must("go", ["install", module], { ...options, env });
  return program;
}

const GRPCURL_VERSION = "1.9.4";

const grpcurl: InteropClient = {
  name: "grpcurl",
  async prepare(options) {
    const module = `github.com/fullstorydev/grpcurl/cmd/grpcurl@v${GRPCURL_VERSION}`;
    const file = await goTool(module, "grpcurl", options);
    return client(`grpcurl ${GRPCURL_VERSION}`, {
      command: ({ service, method, message, deadlineMs }, { address }) => [
        ...[file, "-plaintext", "-format-error", "-d", JSON.stringify(message)],
        ...(deadlineMs === undefined ? [] : ["-max-time", String(deadlineMs / 1000)]),
        ...[address, `${service}/${method}`],
      ],
      messages: printed,
      error: printedError,
    });
  },
};

const GHZ_VERSION = "0.93.0";

/** A generator of load: it counts statuses, and shows no answers. */
const ghz: InteropClient = {
  name: "ghz",
  cannot: {
    reason: "ghz counts codes, and shows no details.",
    cancel: "ghz ends calls by its own deadline alone.",
    "12 MB": "ghz drops the messages that it gets.",
  },
  async prepare(options) {
    const file = await goTool(`github.com/bojand/ghz/cmd/ghz@v${GHZ_VERSION}`, "ghz", options);
    return {
      version: `ghz ${GHZ_VERSION}`,
      async call({ cell, argument }: Task, { address, sandboxId, signal }: Target) {
        const calls = cell === "100 in parallel" ? PARALLEL : 1;
        const method = cell === "unary" || calls > 1 ? "RunCommand" : "Exec";
        const args = [
          "--insecure",
          "--call",
          `${PROCESSES}/${method}`,
          "-n",
          String(calls),
          "-c",
          String(calls),
        ];
        args.push("-d", JSON.stringify({ sandboxId, shell: argument }), "-O", "json", address);
        if (cell === "deadline") args.unshift("--timeout", "2s");
        const report = JSON.parse(await must(file, args, { signal })) as {
          statusCodeDistribution: Record<string, number>;
        };
        return { statuses: report.statusCodeDistribution };
      },
    };
  },
};

/** Programs that people type, and what they read. */
export const TOOLS: readonly InteropClient[] = [grpcurl, bufCurl, curl, ghz];
