import type { Defect } from "./defect.ts";

const SECRETS = "test/integration/secrets/secrets.test.ts";
const REDACTOR = "test/unit/processes/redactor.test.ts";
const SESSIONS = "test/integration/secrets/sessions.test.ts";
const LEAKS = "test/integration/secrets/leaks.test.ts";
const NOWHERE = "a known secret reaches no log, audit, events, metrics, errors or the store";

/** Of secrets by reference. */
export const SECRET_DEFECTS: readonly Defect[] = [
  {
    name: "a large secrets file is parsed on the event loop",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: 'await parseAside("secrets", text, file)',
        to: "parseSecretsFile(text, file)",
      },
    ],
    test: {
      file: SECRETS,
      title: "of a changed file with the most secrets allowed blocks the event loop for at most 100 ms",
    },
  },
  {
    name: "a secret without the line's end at its end is not redacted",
    changes: [
      { file: "src/processes/redaction.ts", from: 'trimEndOf(value, "\\r\\n") || value', to: "value" },
    ],
    test: {
      file: "test/unit/processes/redaction.test.ts",
      title: "a value with a trailing newline is also redacted without it, as a shell's $(…) passes it",
    },
  },
  {
    name: "a command with redacted output runs on after a restart, with no output",
    changes: [
      { file: "src/processes/process.ts", from: 'process.stop("ENGINE_LOST")', to: "process.abandon()" },
    ],
    test: {
      file: "test/unit/processes/recover.test.ts",
      title: "a process whose output is redacted is ended, because nobody knows its secrets any more",
    },
  },
  {
    name: "a secret that is not text reaches commands as another one",
    changes: [
      { file: "src/tenants/secrets.ts", from: "&& !isUtf8(bytes)", to: "&& isUtf8(bytes) === undefined" },
    ],
    test: {
      file: SECRETS,
      title: "gives no file that is not UTF-8, because a variable would have other bytes",
    },
  },
  {
    name: "every tenant may use every secret",
    changes: [
      {
        file: "src/app.ts",
        from: "tokens.table.grants.get(tenant)?.has(name) ?? false",
        to: "tokens.table.grants.get(tenant)?.has(name) ?? name !== tenant",
      },
      {
        file: "src/tenants/secrets.ts",
        from: "if (!this.#grants.allows(owner, name)) throw",
        to: "if (owner === name) throw",
      },
    ],
    test: { file: SECRETS, title: "that is not granted looks like one that does not exist" },
  },
  {
    name: "a secret's file may be anywhere",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: 'if (!place.startsWith(`${root === "/" ? "" : root}/`)) {',
        to: "if (place === root) {",
      },
    ],
    test: { file: SECRETS, title: "gives no files outside it, and none that others may write" },
  },
  {
    name: "a secret may be written by others",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: "  if (isOwn && isShut) return;\n",
        to: "  if (isOwn || isShut) return;\n",
      },
    ],
    test: { file: SECRETS, title: "gives no files outside it, and none that others may write" },
  },
  {
    name: "output is not redacted",
    changes: [
      {
        file: "src/processes/secret-runner.ts",
        from: "if (!redactSecrets) return",
        to: "if (!redactSecrets || references.length > 0) return",
      },
    ],
    test: {
      file: SECRETS,
      title: "is redacted in the output on request, also in the transcript",
    },
  },
  {
    name: "a secret that two chunks divide is passed on",
    changes: [
      {
        file: "src/processes/secret-search.ts",
        from: "    let node = state;\n",
        to: "    let node = ROOT;\n",
      },
    ],
    test: { file: REDACTOR, title: "possible secrets are held back until they are known not to be one" },
  },
  {
    name: "a changed secrets file that is wrong takes away what was there",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: "if (this.#file === undefined) throw error;",
        to: "if (this.#file !== undefined) throw error;",
      },
    ],
    test: {
      file: SECRETS,
      title: "is set in a command's environment under its name, and a changed one from the next command on",
    },
  },
  {
    name: "output of sessions is not redacted",
    changes: [
      {
        file: "src/sessions/types/interpreter.ts",
        from: "redactSecrets: secrets?.redact ?? false",
        to: "redactSecrets: false",
      },
    ],
    test: {
      file: SESSIONS,
      title: "is redacted in bash's output, wherever that is split, and in its directory",
    },
  },
  {
    name: "what a session holds back of its output is lost",
    changes: [
      { file: "src/sessions/types/interpreter-process.ts", from: "      redacted?.end();\n", to: "" },
    ],
    test: {
      file: SESSIONS,
      title: "is redacted in bash's output, wherever that is split, and in its directory",
    },
  },
  {
    name: "what an interpreter says that does not start shows its secrets",
    changes: [
      {
        file: "src/sessions/types/interpreter-process.ts",
        from: "const heard = this.#redaction?.output(hear);",
        to: "const heard = signal.aborted ? this.#redaction?.output(hear) : undefined;",
      },
    ],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "a secret is passed on as a literal",
    changes: [
      {
        file: "src/processes/redaction.ts",
        from: "new Redactor(await this.#quoted)",
        to: "new Redactor(this.#forms)",
      },
    ],
    test: { file: SESSIONS, title: "is redacted in Python's result, also in a literal of it" },
  },
  {
    name: "a session that is reinitialized loses its secrets",
    changes: [{ file: "src/sessions/manager.ts", from: "secrets: secrets ?? init?.secrets", to: "secrets" }],
    test: { file: SESSIONS, title: "stays when the session is reinitialized, unless others are given" },
  },
  {
    name: "the sandbox's secrets go before what a session sets itself",
    changes: [
      {
        file: "src/sessions/types/interpreter.ts",
        from: "...withoutVariables(sandbox.spec.secretEnv, config.env ?? {})",
        to: "...withoutVariables(sandbox.spec.secretEnv, {})",
      },
    ],
    test: {
      file: SESSIONS,
      title: "overrides the sandbox's secrets, and the session's own variables override both",
    },
  },
  {
    name: "a session takes secrets that it never has",
    changes: [
      {
        file: "src/sessions/create.ts",
        from: "if (secrets === undefined || takesSecrets) return;",
        to: "if (secrets === undefined || takesSecrets || name !== undefined) return;",
      },
    ],
    test: { file: SESSIONS, title: "is refused if it would have no effect, before anything ends" },
  },
  {
    name: "commands are stored in clear",
    changes: [{ file: "src/processes/store.ts", from: "seal.text(facts)", to: "facts" }],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "the environment of sandboxes is stored in clear",
    changes: [
      {
        file: "src/sandboxes/store.ts",
        from: "this.#database.seal.text(JSON.stringify(spec))",
        to: "JSON.stringify(spec)",
      },
    ],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "the configuration of sessions is stored in clear",
    changes: [
      {
        file: "src/sessions/store.ts",
        from: "this.#database.seal.text(JSON.stringify(session))",
        to: "JSON.stringify(session)",
      },
    ],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "runs are stored in clear",
    changes: [
      {
        file: "src/runs/store.ts",
        from: "return this.#database.seal.text(JSON.stringify(record));",
        to: "return JSON.stringify(record);",
      },
    ],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "output is stored in clear",
    changes: [{ file: "src/processes/store.ts", from: "seal.bytes(transcript)", to: "transcript" }],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "answers are stored in clear",
    changes: [{ file: "src/state/request-store.ts", from: "seal.bytes(answer)", to: "answer" }],
    test: { file: LEAKS, title: NOWHERE },
  },
  {
    name: "a secrets file that is missing for a moment makes commands fail",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: "stat(this.#place, { bigint: true }).catch(() => undefined);",
        to: "stat(this.#place, { bigint: true });",
      },
    ],
    test: {
      file: SECRETS,
      title: "of a file that is gone for a while stays what it was, also if no command had used it",
    },
  },
  {
    name: "a directory in the place of the secrets file makes commands fail",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: "found?.isDirectory() && this.#file === undefined",
        to: "found?.isDirectory()",
      },
    ],
    test: { file: SECRETS, title: "of a file in whose place a directory is stays what it was" },
  },
  {
    name: "a secrets file that came back counts as unusable until it changes",
    changes: [
      {
        file: "src/tenants/secrets.ts",
        from: "    if (version === last?.version) this.#stale = undefined;\n",
        to: "",
      },
    ],
    test: {
      file: SECRETS,
      title: "of a file that is gone for a while stays what it was, also if no command had used it",
    },
  },
  {
    name: "a secrets file that is missing is reported with a command about tokens",
    changes: [
      {
        file: "src/tenants/private-file.ts",
        from: "ADVICE[holds].missing(quoted)",
        to: "ADVICE.tokens.missing(quoted)",
      },
    ],
    test: {
      file: SECRETS,
      title: "a secrets file that does not exist is reported with the command that makes one",
    },
  },
  {
    name: "a secrets file that is too large is reported with advice about tokens",
    changes: [
      {
        file: "src/tenants/private-file.ts",
        from: "ADVICE[holds].tooLarge",
        to: "ADVICE.tokens.tooLarge",
      },
    ],
    test: {
      file: SECRETS,
      title: "%s is refused at start, without printing a value",
    },
  },
  {
    name: "a secrets file has errors in the words of a parser",
    changes: [
      {
        file: "src/tenants/secrets-file.ts",
        from: "safeParse(content, IN_PLAIN_WORDS)",
        to: "safeParse(content)",
      },
    ],
    test: { file: SECRETS, title: "%s is refused at start, without printing a value" },
  },
  {
    name: "a secrets file that cannot be used is only reported once a command needs it",
    changes: [{ file: "src/app.ts", from: "  secrets.follow();\n", to: "" }],
    test: {
      file: SECRETS,
      title:
        "of a file that cannot be used is reported before a command needs it, and no longer once the file is repaired",
    },
  },
];
