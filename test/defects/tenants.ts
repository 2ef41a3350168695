import type { Defect } from "./defect.ts";

const ACCESS = "test/integration/tenants/access.test.ts";
const RELOAD = "test/integration/tenants/reload.test.ts";
const ISOLATION = "test/integration/tenants/isolation.test.ts";
const QUOTAS = "test/unit/sandboxes/tenant-quotas.test.ts";
const QUOTAS_SHOWN = "test/integration/tenants/quotas.test.ts";
const COMMAND = "test/integration/cli/token.test.ts";
const STREAM_TURNS = "test/unit/server/stream-turns.test.ts";
const EVERY_METHOD = "%s: every method ends in the right code, before a body is read";
const IDS = "every method that takes an id: another tenant's is not found";

/** Of tokens, scopes and tenants. */
export const TENANT_DEFECTS: readonly Defect[] = [
  {
    name: "a large tokens file is parsed on the event loop",
    changes: [
      {
        file: "src/tenants/live-tokens.ts",
        from: 'await parseAside("tokens", text, this.#path, this.#stopping.signal)',
        to: "parseTokenFile(text, this.#path)",
      },
    ],
    test: {
      file: RELOAD,
      title: "to the most tokens allowed blocks the event loop for at most 100 ms",
    },
  },
  {
    name: "a running call outlives the text of its token",
    changes: [{ file: "src/tenants/authenticator.ts", from: "record?.sha256 !== tokenHash || ", to: "" }],
    test: {
      file: "test/unit/tenants/authenticator.test.ts",
      title: "a call continues while its token is unchanged",
    },
  },
  {
    name: "a resumed TLS session is not asked for the client's certificate",
    changes: [
      {
        file: "src/server/listener.ts",
        from: ", secureOptions: constants.SSL_OP_NO_TICKET",
        to: "",
      },
    ],
    test: {
      file: RELOAD,
      title:
        "a certificate of a client is checked at every connection of %s, even if the client offers to resume an earlier one",
      row: "TLSv1.3",
    },
  },
  {
    name: "a tenant's sandboxes are not held to its quotas",
    changes: [
      {
        file: "src/sandboxes/tenant-quotas.ts",
        from: "if (limit === undefined || used[name] + amount <= limit) continue;",
        to: "if (limit === undefined || amount <= limit) continue;",
      },
    ],
    test: {
      file: QUOTAS,
      title: "%s: the third sandbox is refused, takes nothing, and fits once another is gone",
      row: "memory_bytes",
    },
  },
  {
    name: "a tenant's calls begin all at once, whoever else calls",
    changes: [
      {
        file: "src/server/fair-queue.ts",
        from: "tenants > 1 ? Math.max(1, bounds.together / tenants) : bounds.alone",
        to: "bounds.alone",
      },
    ],
    test: {
      file: "test/unit/server/fair-queue.test.ts",
      title: "with another tenant only one call is in its turn, and the other's call never waits",
    },
  },
  {
    name: "a stream keeps its turn while it waits for its source",
    changes: [{ file: "src/server/direct-handler.ts", from: "        queue?.rest(call);\n", to: "" }],
    test: {
      file: STREAM_TURNS,
      title: "over %s, streams that wait for their source delay no call",
      row: "gRPC",
    },
  },
  {
    name: "a stream through the library keeps its turn while it waits for its source",
    changes: [{ file: "src/server/library-handler.ts", from: "    queue?.rest(call);\n", to: "" }],
    test: {
      file: STREAM_TURNS,
      title: "over %s, streams that wait for their source delay no call",
      row: "gRPC-Web over HTTP/1.1",
    },
  },
  {
    name: "an upload keeps its turn while it waits for its caller",
    changes: [
      { file: "src/server/request-bytes.ts", from: "          this.#queue?.rest(this.#call);\n", to: "" },
    ],
    test: {
      file: STREAM_TURNS,
      title: "over %s, uploads that wait for their caller delay no call",
      row: "gRPC",
    },
  },
  {
    name: "the turn of what a call has started ends with its first message",
    changes: [{ file: "src/server/fair-queue.ts", from: "!this.#continued.has(call) || ", to: "" }],
    test: {
      file: "test/unit/server/fair-queue.test.ts",
      title: "a turn does not end with what is sent if it is the %s one",
      row: "first",
    },
  },
  {
    name: "the answer of a create waits for the creates that begin later",
    changes: [
      {
        file: "src/server/direct-handler.ts",
        from: "await queue?.answer(call);",
        to: "await queue?.again(call);",
      },
    ],
    test: {
      file: STREAM_TURNS,
      title: "over %s, the answer of a create does not wait for other creates",
      row: "gRPC",
    },
  },
  {
    name: "the answer of a create through the library waits for the creates that begin later",
    changes: [
      {
        file: "src/server/library-handler.ts",
        from: "isUnary ? queue?.answer(call) : queue?.again(call)",
        to: "queue?.again(call)",
      },
    ],
    test: {
      file: STREAM_TURNS,
      title: "over %s, the answer of a create does not wait for other creates",
      row: "gRPC-Web over HTTP/1.1",
    },
  },
  {
    name: "the answer of a create keeps its place as long as a create",
    changes: [
      {
        file: "src/server/fair-queue.ts",
        from: 'this.#answering.has(call) ? "none" : (this.#methodWork.get(call.method) ?? "none")',
        to: 'this.#methodWork.get(call.method) ?? "none"',
      },
    ],
    test: {
      file: "test/unit/server/fair-queue.test.ts",
      title: "the answer of a create does not wait for other creates, and keeps no place",
    },
  },
  {
    name: "a call that waits for its turn is ended as one whose request does not arrive",
    changes: [
      {
        file: "src/server/admission.ts",
        from: "      await queue?.enter(call);\n      call.admitted();\n",
        to: "      call.admitted();\n      await queue?.enter(call);\n",
      },
    ],
    test: {
      file: STREAM_TURNS,
      title: "a call that waits for its turn is not taken for one whose request does not arrive",
    },
  },
  {
    name: "a tenant whose streams are idle counts as one that calls",
    changes: [{ file: "src/server/direct-handler.ts", from: " && !isKeepalive(item)", to: "" }],
    test: {
      file: STREAM_TURNS,
      title: "over %s, a tenant whose streams are idle does not count as active",
      row: "gRPC",
    },
  },
  {
    name: "calls that make sandboxes are as many as others",
    changes: [{ file: "src/app.ts", from: "    methodWork: METHOD_WORK,\n", to: "" }],
    test: {
      file: "test/integration/tenants/floods.alone.test.ts",
      title: "during a tenant's flood of %s another's calls take at most three times as long",
      row: "sandboxes",
    },
  },
  {
    name: "runs that make sandboxes start as often as calls that make none",
    changes: [{ file: "src/rpc/routes.ts", from: "method.startRun,", to: "method.createRun," }],
    test: {
      file: "test/unit/rpc/routes.test.ts",
      title: "%s: a tenant's next call starts after the turn that its work has",
      row: "StartRun",
    },
  },
  {
    name: "a tenant's workspaces take any disk",
    changes: [
      {
        file: "src/workspaces/quota.ts",
        from: "request);\n    this.#quotas.assertWorkspaceRoom(owner, this.ownerBytes(owner), added());\n",
        to: "request);\n",
      },
    ],
    test: {
      file: QUOTAS_SHOWN,
      title:
        "past its disk quota a tenant gets no sandbox over a workspace and no import, until files are removed",
    },
  },
  {
    name: "imports at once take more than their tenant's quota of disk",
    changes: [{ file: "src/workspaces/quota.ts", from: "      reserve(bytes);\n", to: "" }],
    test: {
      file: QUOTAS_SHOWN,
      title:
        "imports count towards a tenant's disk quota as they arrive: concurrent, replacing and endless ones",
    },
  },
  {
    name: "a tenant's creates are not limited in rate",
    changes: [
      {
        file: "src/sandboxes/tenant-quotas.ts",
        from: "    this.#spendCreate(owner);\n",
        to: "",
      },
    ],
    test: {
      file: QUOTAS,
      title:
        "creates: a second's worth at once, then as fast as the bucket refills; retry_after is when the next fits",
    },
  },
  {
    name: "a create that fails keeps what it reserved of a quota",
    changes: [
      {
        file: "src/sandboxes/capacity.ts",
        from: "      share.release();\n      place.release();",
        to: "      place.release();",
      },
    ],
    test: {
      file: QUOTAS_SHOWN,
      title:
        "a tenant is held to its quotas, also after a restart and a change of the file, and another is not",
    },
  },
  {
    name: "a token is known by its id alone",
    changes: [
      {
        file: "src/tenants/authenticator.ts",
        from: "if (!isRight || record === undefined)",
        to: "if (record === undefined || (isRight && !record))",
      },
    ],
    test: { file: ACCESS, title: EVERY_METHOD, row: "a wrong secret, over gRPC" },
  },
  {
    name: "whoever opens a stream of requests reaches its handler",
    changes: [
      {
        file: "src/server/routes.ts",
        from: "return admit(context);",
        to: 'return method.methodKind === "bidi_streaming" ? undefined : admit(context);',
      },
    ],
    test: { file: ACCESS, title: EVERY_METHOD, row: "no token, over gRPC" },
  },
  {
    name: "an expired token is let in",
    changes: [
      {
        file: "src/tenants/authenticator.ts",
        from: "    if (this.#isExpired(record)) throw new RefusedCaller(principal, expired());\n",
        to: "",
      },
    ],
    // Its calls end soon all the same, when running ones are checked; a page is answered at once.
    test: { file: ACCESS, title: "%s: every page", row: "expired" },
  },
  {
    name: "a read-only token may change things",
    changes: [
      {
        file: "src/server/admission.ts",
        from: '  if (scope !== "read-only" || ',
        to: '  if (scope !== "admin" || ',
      },
    ],
    test: { file: ACCESS, title: EVERY_METHOD, row: "read-only, over Connect" },
  },
  {
    name: "everybody may act in another tenant",
    changes: [
      {
        file: "src/tenants/authenticator.ts",
        from: 'if (scope !== "admin") throw',
        to: 'if (scope === "read-only") throw',
      },
    ],
    test: { file: ACCESS, title: EVERY_METHOD, row: "another tenant's, over gRPC-Web" },
  },
  {
    name: "the metrics are open",
    changes: [
      {
        file: "src/server/http-endpoints.ts",
        from: '      access: "admin",\n',
        to: '      access: "open",\n',
      },
    ],
    test: { file: ACCESS, title: "%s: every page", row: "no token" },
  },
  {
    name: "a call goes on after its token was revoked",
    changes: [
      {
        file: "src/server/server.ts",
        from: "      calls.recheck(authenticator);\n",
        to: "",
      },
    ],
    test: { file: RELOAD, title: "when their token is revoked, and its process is killed" },
  },
  {
    name: "a malformed tokens file empties the tokens of a running service",
    changes: [
      {
        file: "src/tenants/live-tokens.ts",
        from: '    const { text } = await readPrivateFile(this.#path, "tokens");\n    this.#table',
        to: '    const { text } = await readPrivateFile(this.#path, "tokens");\n    this.#table = { tenants: new Map(), tokens: new Map() };\n    this.#table',
      },
    ],
    test: {
      file: RELOAD,
      title: "that cannot be used (%s) leaves the previous tokens in force, and says so",
      row: "malformed",
    },
  },
  {
    name: "others may read the tokens file",
    changes: [
      {
        file: "src/tenants/private-file.ts",
        from: "if ((mode & forbidden) !== 0)",
        to: "if ((mode & forbidden & 0o022) !== 0)",
      },
    ],
    test: { file: RELOAD, title: "a file that others may read is refused at the start, with what to type" },
  },
  {
    name: "client certificates are asked for and not required",
    changes: [
      { file: "src/server/listener.ts", from: "rejectUnauthorized: true", to: "rejectUnauthorized: false" },
    ],
    test: {
      file: RELOAD,
      title: "with --tls-client-ca, a caller needs a certificate of that authority in addition to the token",
    },
  },
  {
    name: "a process of another tenant is found",
    changes: [
      {
        file: "src/processes/registry.ts",
        from: "entry?.sandbox.owner === owner ? wholeOf(entry) : undefined",
        to: "entry === undefined || owner === undefined ? undefined : wholeOf(entry)",
      },
    ],
    test: { file: ISOLATION, title: IDS },
  },
  {
    name: "a request id is the same for all tenants",
    changes: [
      {
        file: "src/rpc/validate/fields.ts",
        from: "const name = { owner: ownerOf(context), method: context.method.name",
        to: 'const name = { owner: ownerOf(context) && "all", method: context.method.name',
      },
    ],
    test: { file: ISOLATION, title: "a request id of one tenant is a different request of the other" },
  },
  {
    name: "a workspace's directory is named by its id alone",
    changes: [
      {
        file: "src/workspaces/host/layout.ts",
        from: "return path.join(this.ownerRoot(owner), sha256(workspaceId));",
        to: "return path.join(this.ownerRoot(owner && DEFAULT_OWNER), sha256(workspaceId));",
      },
    ],
    test: { file: ISOLATION, title: "the same ids in two tenants name different objects" },
  },
  {
    name: "statistics of other tenants are shown to everybody",
    changes: [
      {
        file: "src/server/call.ts",
        from: 'return callOf(context).principal?.scope === "admin";',
        to: 'return callOf(context).principal?.scope !== "read-only";',
      },
    ],
    test: { file: ISOLATION, title: "lists, statistics and events contain only a tenant's own" },
  },
  {
    name: "two programs that edit the tokens file at once lose a token",
    changes: [
      {
        file: "src/tenants/edit-tokens.ts",
        from: "if (lock !== undefined && (await read())?.text === before?.text) {",
        to: "if (lock !== null) {",
      },
    ],
    test: { file: COMMAND, title: "loses nothing when several programs edit at once" },
  },
  {
    name: "the token of a profile is sent to another address",
    changes: [
      {
        file: "clients/typescript/src/profile.ts",
        from: "return env.BERTH_PROFILE && !address && !env.BERTH_ADDRESS ?",
        to: "return env.BERTH_PROFILE ?",
      },
    ],
    test: { file: COMMAND, title: "from flags" },
  },
  {
    name: "files that could not be read once are not read again",
    changes: [
      {
        file: "src/base/followed-files.ts",
        from: "(isRetry && performance.now() < this.#retryAt)",
        to: "isRetry",
      },
    ],
    test: {
      file: "test/integration/tenants/reload.test.ts",
      title: "files that change while the service can open none are read once it can",
    },
  },
  {
    name: "a secrets file that could not be read once is not read again",
    changes: [{ file: "src/tenants/secrets.ts", from: " && performance.now() < stale.retryAt", to: "" }],
    test: {
      file: "test/integration/tenants/reload.test.ts",
      title: "files that change while the service can open none are read once it can",
    },
  },
  {
    name: "a tenant past its quota of workspaces gets further sandboxes that write to them",
    changes: [
      {
        file: "src/sandboxes/create.ts",
        from: "    await mounts.admit(owner, spec, signal);\n",
        to: "",
      },
    ],
    test: {
      file: QUOTAS_SHOWN,
      title:
        "past its disk quota a tenant gets no sandbox over a workspace and no import, until files are removed",
    },
  },
  {
    name: "commands of sessions do not count towards the quota of commands",
    changes: [
      {
        file: "src/sessions/tool-runner.ts",
        from: "tool.isCommand ? this.#quotas.reserveExec(owner) : undefined",
        to: "tool.isCommand ? this.#quotas.recoverExec(owner) : undefined",
      },
    ],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "that are commands count towards the tenant's quota, until one %s",
      row: "ends",
    },
  },
  {
    name: "a command of a session counts for ever",
    changes: [{ file: "src/sessions/tool-runner.ts", from: "        place?.release();\n", to: "" }],
    test: {
      file: "test/unit/sessions/calls.test.ts",
      title: "that are commands count towards the tenant's quota, until one %s",
      row: "loses its caller",
    },
  },
  {
    name: "what bash runs is no command",
    changes: [{ file: "src/sessions/types/bash/type.ts", from: "  isCommand: true,\n", to: "" }],
    test: {
      file: "test/unit/sessions/types/commands.test.ts",
      title: "what bash and python run is a command of the tenant; what code runs is counted where it starts",
    },
  },
  {
    name: "a tokens file has errors in the words of a parser",
    changes: [
      { file: "src/tenants/token-file.ts", from: "document.toJS(), IN_PLAIN_WORDS", to: "document.toJS()" },
    ],
    test: {
      file: "test/unit/tenants/token-file.test.ts",
      title: "what is of another type than it should be is refused in plain words",
    },
  },
  {
    name: "every user of the machine may keep the operator from revoking tokens",
    changes: [
      {
        file: "src/tenants/edit-tokens.ts",
        from: "hashOf(`${file}\\0${text}`)",
        to: "hashOf(file)",
      },
    ],
    test: {
      file: "test/unit/tenants/edit-tokens.test.ts",
      title:
        "a user of the machine who holds every lock that was ever seen keeps nobody from revoking a token",
    },
  },
  {
    name: "an edit of the tokens file loses what is written between its read and its lock",
    changes: [
      {
        file: "src/tenants/edit-tokens.ts",
        from: " && (await read())?.text === before?.text",
        to: "",
      },
    ],
    test: {
      file: "test/unit/tenants/edit-tokens.test.ts",
      title: "what is written between an edit's read and its lock is not lost",
    },
  },
];
