import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { eventually } from "../../support/eventually.ts";
import { CHART, helm, set } from "../../support/helm.ts";
import { ForwardedPort, kubectl } from "../../support/kubernetes.ts";
import { TokensFile } from "../../support/tokens.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const VERSION = ["--kube-version", "1.34.4"];
const NAMESPACE = `chart-${process.pid}`;
const SANDBOXES = `${NAMESPACE}-sandboxes`;

interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: unknown;
  readonly data?: Readonly<Record<string, string>>;
  readonly spec?: unknown;
}

interface PodTemplate {
  readonly template: {
    readonly spec: {
      readonly containers: readonly Readonly<Record<string, unknown>>[];
      readonly volumes: readonly { readonly name: string }[];
    };
  };
}

function template(values: Readonly<Record<string, string>> = {}): Promise<string> {
  return helm("template", "one", CHART, `--namespace=${NAMESPACE}`, ...VERSION, ...set(values));
}

async function resources(values?: Readonly<Record<string, string>>): Promise<Resource[]> {
  return parseAllDocuments(await template(values)).map((document) => document.toJS());
}

function named(all: readonly Resource[], kind: string, name = "one-berth"): Resource {
  const found = all.find((one) => one.kind === kind && one.metadata.name === name);
  if (found === undefined) throw new Error(`the chart has no ${kind} ${name}`);
  return found;
}

const optionsOf = (all: readonly Resource[]): Record<string, unknown> =>
  JSON.parse(named(all, "ConfigMap").data?.["config.json"] ?? "");

/** Whether the service account of the release `two` may do this. */
async function permitted(verb: string, resource: string, namespace: string): Promise<boolean> {
  const spec = {
    user: `system:serviceaccount:${NAMESPACE}:two-berth`,
    resourceAttributes: { verb, resource, namespace },
  };
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
  const answer = await kubectl(["create", "--filename=-", "--output=json"], {
    input: JSON.stringify(review),
  });
  return JSON.parse(answer).status.allowed;
}

const TLS = { "tls.secret": "berth-tls" };
const SHARED = { "sandboxes.namespace": SANDBOXES, "sandboxes.createNamespace": "false" };
const MANY = {
  ...TLS,
  ...SHARED,
  replicas: "3",
  "imagePullSecrets[0]": "registry",
  "allowHosts[0]": "berth.example.com",
  "options.max-sandboxes": "7",
  "data.storageClass": "local",
  "service.type": "LoadBalancer",
  "nodeSelector.disk": "fast",
  "tolerations[0].key": "berth",
  "podAnnotations.note": "here",
  "serviceAccount.annotations.note": "here",
};

beforeAll(async () => {
  for (const name of [NAMESPACE, SANDBOXES]) {
    await kubectl(["create", "namespace", name]);
  }
});
afterAll(async () => {
  await kubectl(["delete", "namespace", NAMESPACE, SANDBOXES]);
});

describe("deploy/helm/berth", () => {
  test("passes helm lint", async () => {
    expect(await helm("lint", "--strict", ...VERSION, CHART)).toContain("0 chart(s) failed");
  });

  test.each([
    ["with the least", SHARED],
    ["with everything", MANY],
  ])("the API server accepts it %s", async (_, values) => {
    const answer = await kubectl(["apply", "--dry-run=server", "--validate=strict", "--filename=-"], {
      input: await template(values),
    });
    for (const kind of ["statefulset.apps", "role.rbac", "poddisruptionbudget.policy", "service"]) {
      expect(answer).toContain(`${kind}`);
    }
  });

  test("is installed, and uninstalled except for the sandboxes' namespace", async () => {
    const [release, own] = ["two", "two-berth-sandboxes"];
    // Without a replica: only the objects.
    const where = `--namespace=${NAMESPACE}`;
    await helm("install", release, CHART, where, ...set({ replicas: "0" }));
    try {
      const label = "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}";
      expect(await kubectl(["get", "namespace", own, "--output", label])).toBe("baseline");
      const bindings = await kubectl(["get", "rolebindings", `--namespace=${own}`, "--output=name"]);
      expect(bindings.trim()).toBe("rolebinding.rbac.authorization.k8s.io/two-berth");
      expect(await permitted("create", "pods", own)).toBe(true);
      expect(await permitted("create", "pods", NAMESPACE)).toBe(false);
      expect(await permitted("get", "secrets", NAMESPACE)).toBe(false);
      await helm("uninstall", release, where);
      expect(await kubectl(["get", "statefulsets,services,roles", where, "--output=name"])).toBe("");
      expect(await kubectl(["get", "namespace", own, "--output=name"])).toBe(`namespace/${own}\n`);
    } finally {
      await kubectl(["delete", "namespace", own, "--ignore-not-found"]);
    }
  });

  test("its pod keeps to the PodSecurity level restricted", async () => {
    await kubectl(["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]);
    const { template } = named(await resources(MANY), "StatefulSet").spec as PodTemplate;
    const create = (changes: object): Promise<string> =>
      kubectl(["create", "--dry-run=server", "--filename=-"], {
        input: JSON.stringify({
          apiVersion: "v1",
          kind: "Pod",
          metadata: { name: "one-berth-0", namespace: NAMESPACE },
          spec: {
            ...template.spec,
            // The ones that the StatefulSet and the release create.
            serviceAccountName: "default",
            volumes: ["data", "tmp", "config", "tokens", "tls"].map((name) => ({ name, emptyDir: {} })),
            ...changes,
          },
        }),
      });
    expect(await create({})).toContain("pod/one-berth-0 created");
    await expect(create({ securityContext: {} })).rejects.toThrow('violates PodSecurity "restricted');
  });

  test("its pod reads the tokens and keeps data in its volume, as an ordinary user", async () => {
    const tokens = new TokensFile();
    await tokens.add("acme");
    const within = `--namespace=${NAMESPACE}`;
    await kubectl(["create", "secret", "generic", "berth-tokens", within, `--from-file=${tokens.path}`]);
    const data = {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name: "data", namespace: NAMESPACE },
      spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } } },
    };
    const { template } = named(await resources(SHARED), "StatefulSet").spec as PodTemplate;
    const [container] = template.spec.containers;
    const { livenessProbe, readinessProbe, startupProbe, ...rest } = container ?? {};
    expect([livenessProbe, readinessProbe, startupProbe]).not.toContain(undefined);
    const program = `
      id -u
      berth token ls --tokens /etc/berth/tokens/tokens.yaml
      # It ends where it looks for an engine, with its data directory made.
      berth serve --engine auto --data-dir /var/lib/berth/data || echo "ended with $?"
      stat --format '%a %u %n' /var/lib/berth/data/berth.db
      touch /file || touch /tmp/file && echo "only /tmp is written"
    `;
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "probe", namespace: NAMESPACE },
      spec: {
        ...template.spec,
        serviceAccountName: "default",
        restartPolicy: "Never",
        containers: [
          {
            ...rest,
            imagePullPolicy: "Never",
            resources: {},
            command: ["/bin/sh", "-c", program],
            args: [],
          },
        ],
        volumes: [
          ...template.spec.volumes.filter(({ name }) => name !== "config"),
          { name: "config", emptyDir: {} },
          { name: "data", persistentVolumeClaim: { claimName: "data" } },
        ],
      },
    };
    for (const input of [data, pod]) {
      await kubectl(["create", "--filename=-"], { input: JSON.stringify(input) });
    }
    const phase = ["get", "pod", "probe", within, "--output=jsonpath={.status.phase}"];
    await eventually(async () => ["Succeeded", "Failed"].includes(await kubectl(phase)), {
      timeoutMs: 60_000,
    });
    const log = await kubectl(["logs", "probe", within]);
    for (const text of [
      "1000\n",
      "acme",
      "ended with 1\n",
      "600 1000 /var/lib/berth/data/berth.db",
      "only /tmp is",
    ]) {
      expect(log).toContain(text);
    }
  });

  test("runs: two replicas become ready, each with its own sandboxes, and the demo's job from outside", async () => {
    const release = "real";
    const tokens = new TokensFile();
    const token = await tokens.add("acme");
    const where = `--namespace=${NAMESPACE}`;
    await kubectl([
      "create",
      "secret",
      "generic",
      "real-tokens",
      where,
      `--from-file=tokens.yaml=${tokens.path}`,
    ]);
    const values = {
      ...SHARED,
      replicas: "2",
      "tokens.secret": "real-tokens",
      "image.pullPolicy": "Never",
      "sandboxes.image": "berth/test:latest",
      "options.network-policy": "open",
      "resources.requests.cpu": "50m",
    };
    const install = () => helm("install", release, CHART, where, "--wait", "--timeout=120s", ...set(values));
    await install();
    const berth = (replica: number, ...args: readonly string[]): Promise<string> => {
      const program = ["env", `BERTH_TOKEN=${token}`, "BERTH_ADDRESS=127.0.0.1:7070", "berth", ...args];
      return kubectl(["exec", `real-berth-${replica}`, where, "--", ...program]);
    };
    expect(await berth(0, "run", "--", "python3", "-c", "print(6 * 7)")).toBe("42\n");
    const id = (await berth(1, "create")).trim();
    expect(await berth(1, "exec", id, "--", "sh", "-c", "echo $((2 * 3)) | tee /tmp/kept")).toBe("6\n");
    expect((await berth(1, "ls", "-q")).trim()).toBe(id);
    expect(await berth(0, "ls", "-q")).toBe("");

    {
      await using port = await ForwardedPort.open(NAMESPACE, "service/real-berth", 7070);
      const demo = (secret: string) =>
        promisify(execFile)(process.execPath, [`${ROOT}scripts/demo.mjs`, "--at", port.address], {
          env: { ...process.env, BERTH_TOKEN: secret },
        });
      const { stdout } = await demo(token);
      expect(stdout).toMatch(/exit code 0; \d+ bytes in ([2-9]|\d\d) chunks/);
      expect(stdout).toContain("on Linux");
      await expect(demo("berth_none_none")).rejects.toThrow("Give a token with BERTH_TOKEN");
    }

    // Sandboxes, data and tokens remain. A new install of the release finds them.
    await helm("uninstall", release, where, "--wait");
    const within = `--namespace=${SANDBOXES}`;
    const phases = ["get", "pods", within, "--output=jsonpath={.items[*].status.phase}"];
    const claims = ["get", "pvc", where, "--selector=app.kubernetes.io/instance=real", "--output=name"];
    expect(await kubectl(phases)).toBe("Running");
    expect((await kubectl(claims)).trim().split("\n")).toEqual([
      "persistentvolumeclaim/data-real-berth-0",
      "persistentvolumeclaim/data-real-berth-1",
    ]);
    await kubectl(["get", "secret", "real-tokens", where]);
    expect(await kubectl(["get", "statefulsets,services,roles", where, "--output=name"])).toBe("");
    await install();
    expect((await berth(1, "ls", "-q")).trim()).toBe(id);
    expect(await berth(1, "exec", id, "--", "cat", "/tmp/kept")).toBe("6\n");
    await berth(1, "rm", id);
    await helm("uninstall", release, where, "--wait");
    expect(await kubectl(["get", "pods", within, "--output=name"])).toBe("");
  }, 240_000);

  test("gives the rights of deploy/kubernetes/rbac.yaml", async () => {
    const documents = parseAllDocuments(readFileSync(`${ROOT}deploy/kubernetes/rbac.yaml`, "utf8"));
    const role = documents.map((document) => document.toJS() as Resource).find(({ kind }) => kind === "Role");
    expect(role?.rules).toBeDefined();
    expect(named(await resources(), "Role").rules).toEqual(role?.rules);
  });

  test("configures the service: its own options, names and tokens; values override them", async () => {
    const plain = optionsOf(await resources());
    expect(plain).toMatchObject({ engine: "kubernetes", namespace: "one-berth-sandboxes", insecure: true });
    expect(plain).toMatchObject({ "workspace-volume-size": "10GiB", "volume-access-mode": "ReadWriteOnce" });
    expect(plain).not.toHaveProperty("storage-class");
    const workspaces = { "workspaces.size": "5Gi", "workspaces.storageClass": "fast" };
    expect(
      optionsOf(await resources({ ...workspaces, "workspaces.accessMode": "ReadWriteMany" })),
    ).toMatchObject({
      "workspace-volume-size": "5GiB",
      "storage-class": "fast",
      "volume-access-mode": "ReadWriteMany",
    });
    expect(plain["allow-host"]).toContain(`one-berth-0.${NAMESPACE}.svc.cluster.local`);

    const many = optionsOf(await resources(MANY));
    expect(many).toMatchObject({
      "max-sandboxes": 7,
      namespace: SANDBOXES,
      "tls-cert": "/etc/berth/tls/tls.crt",
    });
    expect(many).not.toHaveProperty("insecure");
    expect(many["allow-host"]).toEqual(
      expect.arrayContaining(["berth.example.com", "one-berth-2", "one-berth-2.one-berth-replicas"]),
    );
  });

  test("has a monitor if one is wanted, with an admin's token", async () => {
    expect((await resources()).map(({ kind }) => kind)).not.toContain("ServiceMonitor");
    const values = {
      "serviceMonitor.enabled": "true",
      "serviceMonitor.tokenSecret.name": "admin-token",
      "serviceMonitor.tlsConfig.serverName": "berth.example.com",
      ...TLS,
    };
    const all = await resources(values);
    const { selector, endpoints } = named(all, "ServiceMonitor").spec as {
      readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
      readonly endpoints: readonly object[];
    };
    expect(endpoints).toEqual([
      {
        port: "berth",
        path: "/metrics",
        interval: "30s",
        scheme: "https",
        tlsConfig: { serverName: "berth.example.com" },
        authorization: { credentials: { name: "admin-token", key: "token" } },
      },
    ]);
    const chosen = all.filter(
      ({ kind, metadata }) =>
        kind === "Service" &&
        Object.entries(selector.matchLabels).every(
          ([key, value]) => (metadata as { labels?: Record<string, string> }).labels?.[key] === value,
        ),
    );
    expect(chosen.map(({ metadata }) => metadata.name)).toEqual(["one-berth-replicas"]);
  });

  test("probes present no client certificate, so they only connect if every client needs one", async () => {
    const probesOf = async (values: Readonly<Record<string, string>>) => {
      const { template } = named(await resources(values), "StatefulSet").spec as PodTemplate;
      const [container] = template.spec.containers;
      return ["livenessProbe", "readinessProbe", "startupProbe"].map((probe) => container?.[probe]);
    };
    for (const probe of await probesOf(TLS))
      expect(probe).toMatchObject({ httpGet: { port: "berth", scheme: "HTTPS" } });
    for (const probe of await probesOf({ ...TLS, "options.tls-client-ca": "/etc/berth/tls/ca.crt" })) {
      expect(probe).toMatchObject({ tcpSocket: { port: "berth" } });
      expect(probe).not.toHaveProperty("httpGet");
    }
  });

  test.each([
    ["a misspelled value", { replica: "2" }, "replica"],
    ["no tokens", { "tokens.secret": "" }, "tokens"],
    ["a monitor without a token", { "serviceMonitor.enabled": "true" }, "tokenSecret.name"],
    [
      "a monitor without a name for TLS",
      { "serviceMonitor.enabled": "true", ...TLS },
      "tlsConfig.serverName",
    ],
  ])("refuses %s", async (_, values, named) => {
    await expect(template(values)).rejects.toThrow(named);
  });

  test("documents every value", () => {
    const schema = JSON.parse(readFileSync(`${CHART}/values.schema.json`, "utf8"));
    const values = parse(readFileSync(`${CHART}/values.yaml`, "utf8"));
    expect(Object.keys(schema.properties).filter((key) => key !== "global")).toEqual(Object.keys(values));
  });
});
