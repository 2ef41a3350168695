import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { loadConfig, misspelledVariables } from "../../../src/config/load.ts";
import { CONFIG_OPTIONS } from "../../../src/config/options.ts";
import { SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";

const dir = mkdtempSync(path.join(tmpdir(), "berth-config-"));
afterAll(() => rmSync(dir, { recursive: true }));

let files = 0;
function file(content: unknown): string {
  const name = path.join(dir, `${++files}.json`);
  writeFileSync(name, typeof content === "string" ? content : JSON.stringify(content));
  return name;
}

const load = (flags: Parameters<typeof loadConfig>[0]["flags"] = {}, env: Record<string, string> = {}) =>
  loadConfig({ flags, env });

function problemOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof BerthError && error.reason === "INVALID_ARGUMENT") return error.message;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("defaults", () => {
  test("are the documented ones", () => {
    expect(load()).toEqual({
      listen: { kind: "tcp", host: "127.0.0.1", port: 7070 },
      tlsCert: undefined,
      tlsKey: undefined,
      tlsClientCa: undefined,
      tokens: undefined,
      secrets: undefined,
      insecure: false,
      allowHosts: [],
      corsOrigins: [],
      engine: "auto",
      dockerRequired: false,
      dockerHost: undefined,
      kubeconfig: undefined,
      namespace: undefined,
      nodeSelector: {},
      tolerations: [],
      runtimeClass: undefined,
      imagePullSecrets: [],
      podTemplate: undefined,
      networkPolicy: undefined,
      workspaceVolumeBytes: 10 * 2 ** 30,
      storageClass: undefined,
      volumeAccessMode: "ReadWriteOnce",
      volumeClones: false,
      egressCidrs: [],
      denyCidrs: [],
      egressDns: [],
      instance: undefined,
      allowHostPaths: [],
      allowRuntimes: {},
      maxSandboxes: 100,
      defaultImage: "python:3.12-slim",
      desktopImage: "berth/desktop",
      defaultMemoryBytes: 512 * 2 ** 20,
      defaultCpuMillis: 1000,
      idleTimeoutMs: 3_600_000,
      maxLifetimeMs: undefined,
      cleanupIntervalMs: 300_000,
      deleteGraceMs: 5000,
      commandTimeoutMs: 300_000,
      maxProcessesPerSandbox: 256,
      transcriptWindowBytes: 64 * 2 ** 20,
      transcriptQuotaBytes: 4 * 2 ** 30,
      transcriptOwnerQuotaBytes: 2 * 2 ** 30,
      answerQuotaBytes: 2 ** 30,
      answerOwnerQuotaBytes: 2 ** 29,
      runOwnerQuotaBytes: 2 ** 29,
      dataDir: expect.stringMatching(/berth$/),
      sessionTtlMs: 300_000,
      auditLog: undefined,
      auditReads: false,
      auditFileBytes: 64 * 1024 * 1024,
      auditFiles: 10,
      stopTimeoutMs: 30_000,
      leaveSandboxes: false,
      warmPools: [],
      warmSessions: [],
      logLevel: "info",
      logFormat: "auto",
    });
  });

  test("agree with the defaults of the managers", () => {
    const config = load();
    expect(SANDBOX_DEFAULTS).toMatchObject({
      image: config.defaultImage,
      memoryBytes: config.defaultMemoryBytes,
      cpuMillis: config.defaultCpuMillis,
      idleTimeoutMs: config.idleTimeoutMs,
      maxLifetimeMs: config.maxLifetimeMs,
      commandTimeoutMs: config.commandTimeoutMs,
    });
  });

  test("no two options share a name", () => {
    const names = Object.values(CONFIG_OPTIONS).map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});

describe("precedence", () => {
  const config = file({ "max-sandboxes": 3, "idle-timeout": "3m", "log-level": "error", insecure: true });

  test("is flag, environment, file, default", () => {
    const { maxSandboxes, idleTimeoutMs, logLevel, cleanupIntervalMs } = load(
      { config, "max-sandboxes": "1" },
      { BERTH_MAX_SANDBOXES: "2", BERTH_IDLE_TIMEOUT: "2m" },
    );
    expect(maxSandboxes).toBe(1);
    expect(idleTimeoutMs).toBe(120_000);
    expect(logLevel).toBe("error");
    expect(cleanupIntervalMs).toBe(300_000);
  });

  test("applies to switches too", () => {
    expect(load({ config }).insecure).toBe(true);
    expect(load({ config }, { BERTH_INSECURE: "false" }).insecure).toBe(false);
    expect(load({ config, insecure: false }, { BERTH_INSECURE: "true" }).insecure).toBe(false);
  });

  test("warm sessions are read", () => {
    expect(load({ "warm-session": ["vm=2", "browser=1"] }).warmSessions).toEqual([
      { resourceType: "vm", count: 2 },
      { resourceType: "browser", count: 1 },
    ]);
  });

  test("tolerations are read in Kubernetes' form", () => {
    expect(
      load({ toleration: ["pool", "pool=x", "pool:NoSchedule", "pool=x:NoExecute"] }).tolerations,
    ).toEqual([
      { key: "pool", operator: "Exists" },
      { key: "pool", operator: "Equal", value: "x" },
      { key: "pool", operator: "Exists", effect: "NoSchedule" },
      { key: "pool", operator: "Equal", value: "x", effect: "NoExecute" },
    ]);
  });

  test("a list is replaced, not joined", () => {
    const lists = file({ "allow-host-path": ["/a", "/b"] });
    expect(load({ config: lists }).allowHostPaths).toEqual(["/a", "/b"]);
    expect(load({ config: lists }, { BERTH_ALLOW_HOST_PATH: "/c, /d" }).allowHostPaths).toEqual(["/c", "/d"]);
    expect(load({ config: lists, "allow-host-path": ["/e"] }).allowHostPaths).toEqual(["/e"]);
  });

  test("a file may begin with a byte order mark", () => {
    expect(load({ config: file('\uFEFF{"max-sandboxes": 3}') }).maxSandboxes).toBe(3);
  });

  test("the environment may name the file; an empty variable counts as unset", () => {
    expect(load({}, { BERTH_CONFIG: config }).maxSandboxes).toBe(3);
    expect(load({}, { BERTH_CONFIG: "", BERTH_MAX_SANDBOXES: "" }).maxSandboxes).toBe(100);
  });
});

describe("a bad value is reported with its place and what is allowed", () => {
  test.each<[string, Parameters<typeof load>, string]>([
    ["flag", [{ "idle-timeout": "300" }], '--idle-timeout: "300" has no unit; for seconds write 300s.'],
    [
      "variable",
      [{}, { BERTH_DEFAULT_MEMORY: "1MiB" }],
      'BERTH_DEFAULT_MEMORY: "1MiB" is too little; the minimum is 6MiB.',
    ],
    [
      "engine",
      [{ engine: "podman" }],
      '--engine: "podman" is not one of auto, docker, bubblewrap, kubernetes.',
    ],
    ["namespace", [{ namespace: "Berth" }], '--namespace: "Berth" is not a name of Kubernetes'],
    ["toleration", [{ toleration: ["pool=x:Never"] }], "KEY[=VALUE][:EFFECT]"],
    ["network policy", [{ "network-policy": "yes" }], '"yes" is not one of enforced, open.'],
    [
      "access mode",
      [{ "volume-access-mode": "ReadOnlyMany" }],
      '"ReadOnlyMany" is not one of ReadWriteOnce, ReadWriteMany, ReadWriteOncePod.',
    ],
    ["size of a volume", [{ "workspace-volume-size": "1KiB" }], '"1KiB" is too little; the minimum is 1MiB.'],
    ["listen", [{ listen: "7070" }], '--listen: "7070" is not an address; write it as "127.0.0.1:7070"'],
    ["runtime", [{ "allow-runtime": ["runsc"] }], '--allow-runtime: "runsc" is not of the form NAME=LEVEL.'],
    [
      "runtime",
      [{ "allow-runtime": ["runsc=safe"] }],
      '"safe" is not one of container, user-kernel, virtual-machine.',
    ],
    ["host", [{ "allow-host": ["https://a.b"] }], "--allow-host:"],
    ["origin", [{ "cors-origin": ["https://a.b/c"] }], "write it as https://app.example.com"],
    ["path", [{ "allow-host-path": ["data"] }], '--allow-host-path: "data" is not an absolute path.'],
    ["docker host", [{}, { BERTH_DOCKER_HOST: "/var/run/docker.sock" }], "BERTH_DOCKER_HOST:"],
    ["level", [{ "log-level": "loud" }], "trace, debug, info, warn, error, fatal, silent"],
    ["instance", [{ instance: "a b" }], "--instance:"],
    ["image", [{ "default-image": "" }], "--default-image:"],
    ["warm session", [{ "warm-session": ["bash=1"] }], '--warm-session: "bash" is not one of vm, browser.'],
    [
      "warm session",
      [{ "warm-session": ["vm=1", "vm=2"] }],
      '--warm-session: "vm" is named twice; give its number once.',
    ],
    ["warm session", [{ "warm-session": ["vm=0"] }], "--warm-session:"],
    ["warm session", [{ "warm-session": ["vm"] }], '--warm-session: "vm" is not of the form TYPE=N.'],
    ["warm pool", [{ "warm-pool": ["foo"] }], '--warm-pool: "foo" is not of the form IMAGE=N.'],
    ["node selector", [{ "node-selector": ["a"] }], '--node-selector: "a" is not of the form LABEL=VALUE.'],
  ])("%s", (_what, [flags, env], problem) => {
    expect(problemOf(() => load(flags, env))).toContain(problem);
  });

  test("in a file: key, kind and unknown keys with the nearest name", () => {
    const bad = (content: unknown) => problemOf(() => load({ config: file(content) }));
    expect(bad({ "idle-timeout": 300 })).toMatch(
      /\d+\.json: idle-timeout: "300" has no unit; for seconds write 300s\.$/,
    );
    expect(bad({ "max-sandbox": 5 })).toContain(
      'there is no option "max-sandbox" (did you mean "max-sandboxes"?)',
    );
    expect(bad({ idle_timeout: "5m" })).toContain('(did you mean "idle-timeout"?)');
    expect(bad({ colour: "blue" })).toMatch(/there is no option "colour"\.$/);
    expect(bad({ "allow-host": [["a"]] })).toContain("allow-host");
    expect(bad({ listen: ["a:1", "b:2"] })).toContain("listen: it takes exactly one value.");
    expect(bad({ listen: null })).toContain("listen must be a text");
    expect(bad("[1, 2]")).toContain("it must contain one JSON object");
    expect(bad("{")).toContain("it is not JSON");
    expect(
      bad('{"max-sandboxes": 20, "allow-host": ["max-sandboxes", ":"], "max-sandboxes" : 30}'),
    ).toContain('"max-sandboxes" appears twice; remove one.');
    expect(problemOf(() => load({ config: "/nowhere/berth.json" }))).toBe(
      "Configuration file /nowhere/berth.json: there is no such file.",
    );
  });
});

test("only variables whose names are close to an option's are reported", () => {
  const env = {
    BERTH_LISTN: "127.0.0.1:1",
    BERTH_MAX_SANDBOX: "5",
    BERTH_LISTEN: "127.0.0.1:2",
    BERTH_TOKEN: "berth_x",
    BERTH_TLS_CA: "ca.pem",
    BERTH_CLIENT_CERT: "client.pem",
    BERTH_CLIENT_KEY: "client.key",
    BERTH_TENANT: "red",
    BERTH_CONFIG: "berth.json",
    // Set by Kubernetes for a service called berth.
    BERTH_PORT: "tcp://10.0.0.1:7070",
    BERTH_SERVICE_HOST: "10.0.0.1",
    BERTH_SERVICE_PORT: "7070",
    BERTH_PORT_7070_TCP: "tcp://10.0.0.1:7070",
    BERTH_PORT_7070_TCP_ADDR: "10.0.0.1",
    BERTH_PORT_7070_TCP_PROTO: "tcp",
    BERTH_TEST_RUN: "1",
    LISTN: "1",
  };
  expect(misspelledVariables(env)).toEqual([
    { variable: "BERTH_LISTN", meant: "BERTH_LISTEN" },
    { variable: "BERTH_MAX_SANDBOX", meant: "BERTH_MAX_SANDBOXES" },
  ]);
});

describe("beyond loopback", () => {
  test.each(["0.0.0.0:7070", ":7070", "[::]:7070", "192.0.2.1:7070", "berth.example.com:7070"])(
    "%s needs tokens and TLS, or --insecure",
    (listen) => {
      const tls = { "tls-cert": "c.pem", "tls-key": "k.pem" };
      const tokens = "tokens.yaml";
      expect(problemOf(() => load({ listen }))).toBe(
        `--listen: ${listen} can be reached from other machines; without tokens anyone who reaches it can run code, ` +
          "and without TLS anyone on the network path can read everything, tokens included. " +
          "Give --tokens, --tls-cert and --tls-key, listen on 127.0.0.1:PORT or unix:PATH, or accept it with --insecure.",
      );
      expect(problemOf(() => load({}, { BERTH_LISTEN: listen }))).toMatch(/^BERTH_LISTEN: /);
      expect(problemOf(() => load({ listen, ...tls }))).toContain("Give --tokens, listen on");
      expect(problemOf(() => load({ listen, ...tls, "tls-client-ca": "ca.pem" }))).toContain("Give --tokens");
      expect(problemOf(() => load({ listen, tokens }))).toContain("Give --tls-cert and --tls-key, listen on");
      expect(load({ listen, insecure: true }).listen.kind).toBe("tcp");
      expect(load({ listen, tokens, insecure: true }).tokens).toBe(path.resolve(tokens));
      expect(load({ listen, tokens, ...tls }).tlsCert).toBe(path.resolve("c.pem"));
    },
  );

  test.each(["127.0.0.1:0", "[::1]:7070", "localhost:7070", "unix:/tmp/b.sock"])("%s does not", (listen) => {
    expect(() => load({ listen })).not.toThrow();
    expect(() => load({ listen, tokens: "tokens.yaml" })).not.toThrow();
  });

  test("records of reads need an audit log", () => {
    expect(problemOf(() => load({ "audit-reads": true }))).toBe(
      "--audit-reads: it requires --audit-log as well.",
    );
    expect(problemOf(() => load({}, { BERTH_AUDIT_READS: "1" }))).toMatch(/^BERTH_AUDIT_READS: it requires/);
    expect(load({ "audit-reads": true, "audit-log": "a.jsonl" }).auditReads).toBe(true);
    expect(load({ "audit-reads": false }).auditReads).toBe(false);
  });

  test("certificate and key go together", () => {
    expect(problemOf(() => load({ "tls-cert": "c.pem" }))).toBe("--tls-cert: it requires --tls-key as well.");
    expect(problemOf(() => load({ "tls-client-ca": "ca.pem" }))).toBe(
      "--tls-client-ca: it requires --tls-cert and --tls-key as well.",
    );
    expect(problemOf(() => load({}, { BERTH_TLS_KEY: "k.pem" }))).toMatch(
      /^BERTH_TLS_KEY: it requires --tls-cert/,
    );
  });
});
