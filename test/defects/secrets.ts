import type { Defect } from "./defect.ts";

const SECRETS = "test/integration/secrets/secrets.test.ts";
const REDACTOR = "test/unit/processes/redactor.test.ts";
const SESSIONS = "test/integration/secrets/sessions.test.ts";
const LEAKS = "test/integration/secrets/leaks.test.ts";
const NOWHERE = "a known secret reaches neither log, audit, events, metrics, errors nor the store";

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
      title: "of a changed file with as many as there may be holds the event loop for no more than 100 ms",
    },
  },
  {
    name: "a secret without the line's end at its end is not redacted",
    changes: [
      { file: "src/processes/redaction.ts", from: 'trimEndOf(value, "\\r\\n") || value', to: "value" },
    ],
    test: {
      file: "test/unit/processes/redaction.test.ts",
      title: "a value that ends in a line's end is covered without it too, as a shell's $(…) leaves it",
    },
  },
  {
    name: "a secret that is not text reaches commands as another one",
    changes: [
      { file: "src/tenants/secrets.ts", from: "&& !isUtf8(bytes)", to: "&& isUtf8(bytes) === undefined" },
    ],
    test: { file: SECRETS, title: "gives nothing that is not text, and would be other bytes in a variable" },
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
    test: { file: SECRETS, title: "that is not granted looks like one that is not there" },
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
    test: { file: SECRETS, title: "gives nothing from beside it, nor what others may write" },
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
    test: { file: SECRETS, title: "gives nothing from beside it, nor what others may write" },
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
      title: "is taken out of the output where that is asked for, also out of the transcript",
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
    test: { file: REDACTOR, title: "nothing of a secret leaves before it is known to be none" },
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
      title: "is put into a command's environment by its name, and a changed one from the next command on",
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
      title: "is taken out of what bash writes, wherever that is divided, and out of its directory",
    },
  },
  {
    name: "what a session holds back of its output is lost",
    changes: [
      { file: "src/sessions/types/interpreter-process.ts", from: "      redacted?.end();\n", to: "" },
    ],
    test: {
      file: SESSIONS,
      title: "is taken out of what bash writes, wherever that is divided, and out of its directory",
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
        from: "new Redactor(this.#quoted)",
        to: "new Redactor(this.#forms)",
      },
    ],
    test: { file: SESSIONS, title: "is taken out of what Python returns, also as its literal" },
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
      title: "goes before the sandbox's, and what the session sets itself before both of the sandbox's",
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
    test: { file: SESSIONS, title: "is refused where it comes to nothing, before anything ends" },
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
];
