import { once } from "node:events";
import http2 from "node:http2";
import { buffer } from "node:stream/consumers";
import type { DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Idempotency } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { codeFromString } from "@connectrpc/connect/protocol-connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { newToken } from "../../../src/tenants/token.ts";
import { startTestApp, type TestApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { reflectedMethods } from "../../support/reflected.ts";
import { withTimeEnough } from "../../support/time-enough.ts";
import { TokensFile } from "../../support/tokens.ts";

/** What a caller sends, and how its calls of each kind end. "in": it is admitted. */
interface Caller {
  readonly headers: Readonly<Record<string, string>>;
  readonly reads: "in" | "Unauthenticated" | "PermissionDenied";
  readonly changes: "in" | "Unauthenticated" | "PermissionDenied";
  readonly reflection: "in" | "Unauthenticated" | "PermissionDenied";
  readonly metrics: 200 | 401 | 403;
}

const callers: Record<string, Caller> = {};
let running: TestApp;
let methods: DescMethod[] = [];
let session: http2.ClientHttp2Session;

beforeAll(async () => {
  const file = new TokensFile();
  const user = await file.add("acme");
  await file.add("other");
  const [readOnly, admin] = [
    await file.add("acme", { scope: "read-only" }),
    await file.add("ops", { scope: "admin" }),
  ];
  const expired = await file.add("acme", { expires: Date.now() - 1000 });
  const revoked = await file.add("acme", { scope: "admin" });
  running = await startTestApp({ engine: "bubblewrap", tokens: file.path });
  const { address } = running.app;
  session = http2.connect(`http://${address}`);
  const list = "/berth.v1.SandboxService/ListSandboxes?connect=v1&encoding=json&message=%7B%7D";
  expect(await pageStatus(list, bearer(revoked))).toBe(200);
  await file.revoke(revoked);
  await eventually(async () => (await pageStatus(list, bearer(revoked))) === 401);
  const refused = {
    reads: "Unauthenticated",
    changes: "Unauthenticated",
    reflection: "Unauthenticated",
    metrics: 401,
  } as const;
  const let_in = { reads: "in", changes: "in", reflection: "in" } as const;
  const wrong = user.slice(0, -1) + (user.endsWith("0") ? "1" : "0");
  const elsewhere = { ...bearer(user), "berth-tenant": "other" };
  const denied = {
    reads: "PermissionDenied",
    changes: "PermissionDenied",
    reflection: "PermissionDenied",
    metrics: 403,
  } as const;
  Object.assign(callers, {
    "no token": { headers: {}, ...refused },
    "an empty header": { headers: { authorization: "" }, ...refused },
    "no bearer": { headers: { authorization: `Basic ${user}` }, ...refused },
    "a token that is none": { headers: bearer("nonsense"), ...refused },
    "a long one": { headers: bearer(`${user}${"0".repeat(10_000)}`), ...refused },
    "an unknown id": { headers: bearer(newToken().text), ...refused },
    "a wrong secret": { headers: bearer(wrong), ...refused },
    expired: { headers: bearer(expired), ...refused },
    revoked: { headers: bearer(revoked), ...refused },
    "read-only": { headers: bearer(readOnly), ...let_in, changes: "PermissionDenied", metrics: 403 },
    "another tenant's": { headers: elsewhere, ...denied },
    user: { headers: bearer(user), ...let_in, metrics: 403 },
    admin: { headers: bearer(admin), ...let_in, metrics: 200 },
  } satisfies Record<string, Caller>);
  methods = await reflectedMethods(address, admin);
});
afterAll(async () => {
  session?.close();
  await running?.stop();
});

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

const CALLERS = [
  ...["no token", "an empty header", "no bearer", "a token that is none", "a long one", "an unknown id"],
  ...["a wrong secret", "expired", "revoked", "read-only", "another tenant's", "user", "admin"],
];

const PROTOCOLS = ["gRPC", "gRPC-Web", "Connect", "JSON"] as const;
type Protocol = (typeof PROTOCOLS)[number];

const CALLS = CALLERS.flatMap((name) =>
  PROTOCOLS.map((protocol) => [`${name}, over ${protocol}`, name, protocol] as const),
);

test.each(CALLS)(
  "%s: every method ends in the right code, before a body is read",
  async (_title, name, protocol) => {
    const caller = callers[name] as Caller;
    expect(methods.length).toBeGreaterThan(60);
    const callable = methods.filter((method) => contentType(protocol, method) !== undefined);
    expect(new Set(callable.map(({ methodKind }) => methodKind))).toEqual(new Set(kindsOf(protocol)));
    // Exactly the admitted callers reach the handler, for every kind of method.
    const wanted = callable.map(
      (method) => [pathOf(method), wantedOf(caller, method) === "in" ? 1 : 0] as const,
    );
    const { wrong, entered } = await withTimeEnough(
      CALL_SECONDS,
      async (timeout) => {
        rounds[name] = (rounds[name] ?? 0) + 1;
        const before = await handledCalls();
        const wrong = await callAll(caller, protocol, timeout * 1000);
        const after = await handledCalls();
        return { wrong, entered: wanted.map(([path]) => [path, (after[path] ?? 0) - (before[path] ?? 0)]) };
      },
      ({ entered }) => entered.every(([, count], at) => count !== 0 || wanted[at]?.[1] === 0),
    );
    expect(wrong).toEqual([]);
    expect(entered).toEqual(wanted);
  },
);

/** How often each caller called every method. */
const rounds: Record<string, number> = {};

/** Calls every method at once. Returns those that end in a wrong code. */
async function callAll(caller: Caller, protocol: Protocol, timeoutMs: number): Promise<string[]> {
  const wrong = await Promise.all(
    methods.map(async (method) => {
      const type = contentType(protocol, method);
      if (type === undefined) return [];
      const wanted = wantedOf(caller, method);
      const headers = { ...caller.headers, "content-type": type };
      // A refused caller gets the answer while the request is still open, and the same one with a complete request.
      const codes =
        wanted === "in"
          ? [await call(method, headers, "until it answers", timeoutMs)]
          : [await call(method, headers, "open", timeoutMs), await call(method, headers, "whole", timeoutMs)];
      const isIn = (code: string) =>
        code !== "Unauthenticated" && code !== "PermissionDenied" && code !== NO_ANSWER;
      return codes.every((code) => (wanted === "in" ? isIn(code) : code === wanted))
        ? []
        : [`${pathOf(method)}: ${codes}`];
    }),
  );
  return wrong.flat();
}

/** How many calls have reached the handler of each method, once none is running. */
async function handledCalls(): Promise<Readonly<Record<string, number>>> {
  const figures = async (name: string) => {
    const stream = session.request({ ":path": "/metrics", ...callers.admin?.headers });
    const lines = (await buffer(stream)).toString().matchAll(/^(\w+)\{method="([^"]+)"\} (\d+)$/gm);
    return [...lines]
      .filter(([, found]) => found === name)
      .map(([, , method, value]) => [`/${method}`, Number(value)] as const);
  };
  await eventually(async () => (await figures("berth_rpc_in_flight")).every(([, running]) => running === 0));
  return Object.fromEntries(await figures("berth_rpc_handled_total"));
}

function kindsOf(protocol: Protocol): DescMethod["methodKind"][] {
  const answers: DescMethod["methodKind"][] = ["unary", "server_streaming"];
  return protocol === "JSON" ? answers : [...answers, "client_streaming", "bidi_streaming"];
}

test.each(CALLERS)("%s: every method that can be read by GET", async (name) => {
  const caller = callers[name] as Caller;
  const readable = methods.filter(
    (method) => method.methodKind === "unary" && method.idempotency === Idempotency.NO_SIDE_EFFECTS,
  );
  expect(readable.length).toBeGreaterThan(10);
  for (const method of readable) {
    const path = `${pathOf(method)}?connect=v1&encoding=json&message=%7B%7D`;
    const status = await pageStatus(path, caller.headers);
    const wanted = { Unauthenticated: [401], PermissionDenied: [403], in: [200, 400, 404] }[caller.reads];
    expect(wanted, path).toContain(status);
  }
});

test.each(CALLERS)("%s: every page", async (name) => {
  const { headers, metrics } = callers[name] as Caller;
  for (const path of ["/healthz", "/readyz"]) expect(await pageStatus(path, headers)).toBe(200);
  expect(await pageStatus("/metrics", headers)).toBe(metrics);
  expect(await pageStatus("/", headers)).toBe(404);
});

test("only callers with the right have created anything", async () => {
  const [user, admin] = [callers.user, callers.admin].map((caller) => caller?.headers ?? {});
  const listed = async (headers: Readonly<Record<string, string>> = {}) => {
    const stream = session.request({
      ":path": "/berth.v1.SandboxService/ListSandboxes",
      ":method": "POST",
      "content-type": "application/json",
      ...headers,
    });
    stream.end("{}");
    return JSON.parse((await buffer(stream)).toString()).sandboxes.length as number;
  };
  // Each admitted caller made one each time, if there was time for it.
  expect(await listed(user)).toBeLessThanOrEqual(rounds.user ?? 0);
  expect(await listed(admin)).toBeLessThanOrEqual(rounds.admin ?? 0);
  expect(await listed({ ...admin, "berth-tenant": "other" })).toBe(0);
});

test("a wrong token gets no other answer than a token of an unknown id", async () => {
  const messages = await Promise.all(
    ["an unknown id", "a wrong secret", "revoked"].map(async (name) => {
      const stream = session.request({ ":path": "/metrics", ...(callers[name] as Caller).headers });
      return (await buffer(stream)).toString();
    }),
  );
  expect(new Set(messages).size).toBe(1);
});

test("no token is in the log or in the metrics", async () => {
  const admin = callers.admin?.headers ?? {};
  const metrics = (await buffer(session.request({ ":path": "/metrics", ...admin }))).toString();
  const seen = JSON.stringify(running.log.lines) + metrics;
  expect(metrics).toContain("berth_tokens 5\n");
  for (const { headers } of Object.values(callers)) {
    const secret = /_([0-9A-Za-z]{43})/.exec(headers.authorization ?? "")?.[1];
    if (secret !== undefined) expect(seen).not.toContain(secret.slice(0, 20));
  }
  expect(running.log.lines.some(({ fields }) => "token" in fields && fields.token !== undefined)).toBe(true);
});

function wantedOf({ reads, changes, reflection }: Caller, method: DescMethod): Caller["reads"] {
  const service = method.parent.typeName;
  if (service.startsWith("grpc.health.")) return "in";
  if (service.startsWith("grpc.reflection.")) return reflection;
  return method.idempotency === Idempotency.NO_SIDE_EFFECTS ? reads : changes;
}

/** Undefined: the method cannot be called this way. */
function contentType(protocol: Protocol, { methodKind }: DescMethod): string | undefined {
  switch (protocol) {
    case "gRPC":
      return "application/grpc";
    case "gRPC-Web":
      return "application/grpc-web+proto";
    case "Connect":
      return methodKind === "unary" ? "application/proto" : "application/connect+proto";
    case "JSON":
      return methodKind === "unary" || methodKind === "server_streaming" ? "application/json" : undefined;
  }
}

const NO_ANSWER = "no answer";
/**
 * How long an admitted caller's stream stays open without data: at first what concurrent calls of all methods normally
 * need to reach their handlers.
 */
const CALL_SECONDS = 1.5;
const EMPTY_MESSAGE = Buffer.alloc(5);

/**
 * The code with which a call ends: without a message if `open`, otherwise with an empty one. Ends at the response:
 * leaves a response stream that starts without an error.
 */
async function call(
  method: DescMethod,
  headers: Readonly<Record<string, string>>,
  stays: "open" | "whole" | "until it answers",
  timeoutMs: number,
): Promise<string> {
  const open = stays === "open";
  const type = headers["content-type"] ?? "";
  const timeout = type.includes("grpc")
    ? { "grpc-timeout": `${timeoutMs}m` }
    : { "connect-timeout-ms": `${timeoutMs}` };
  const stream = session.request({
    ...{ ":method": "POST", ":path": pathOf(method) },
    // For admitted callers: streams that do not end.
    ...(open ? {} : timeout),
    ...headers,
  });
  if (!open) {
    if (type === "application/proto") stream.end();
    else if (type === "application/json") stream.end("{}");
    else if (method.methodKind === "unary" || method.methodKind === "server_streaming")
      stream.end(EMPTY_MESSAGE);
    else stream.end();
  }
  stream.setTimeout(90_000, () => stream.destroy(new Error(NO_ANSWER)));
  let status: unknown;
  stream.on("trailers", (trailers) => {
    status ??= trailers["grpc-status"];
  });
  // Without an error, if the service cancels it. A response is reported before, but its promise resolves after this.
  const closed = new Promise<undefined>((resolve) =>
    stream.once("close", () => setImmediate(() => resolve(undefined))),
  );
  const answer = await Promise.race([
    once(stream, "response").then(
      ([head]) => head as http2.IncomingHttpHeaders,
      () => undefined,
    ),
    closed,
  ]);
  if (answer === undefined) return NO_ANSWER;
  status ??= answer["grpc-status"];
  const isLeft = stays === "until it answers" && /^(server|bidi)_streaming$/.test(method.methodKind);
  const body = (await (isLeft ? firstOf(stream) : buffer(stream))).toString("latin1");
  stream.close();
  status ??= /grpc-status: ?(\d+)/.exec(body)?.[1];
  if (status !== undefined) return Code[Number(status)] ?? "OK";
  const word = /"code": ?"(\w+)"/.exec(body)?.[1];
  return word === undefined ? "OK" : (Code[codeFromString(word) ?? 0] ?? word);
}

async function firstOf(stream: http2.ClientHttp2Stream): Promise<Buffer> {
  for await (const chunk of stream) return chunk;
  return Buffer.alloc(0);
}

function pathOf({ parent, name }: DescMethod): string {
  return `/${parent.typeName}/${name}`;
}

async function pageStatus(path: string, headers: Readonly<Record<string, string>>): Promise<number> {
  const stream = session.request({ ":path": path, ...headers });
  const [answer] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
  await buffer(stream);
  return Number(answer[":status"]);
}
