import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { KubernetesEngine } from "../../../src/engine/kubernetes/engine.ts";
import { parseRef } from "../../../src/engine/kubernetes/pod.ts";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { newDataDir, newInstance } from "../../support/settings.ts";
import { failure, run, silent, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const DIR = newDataDir();
const PREFIX = `refusals-${process.pid}`;
const CALL_MS = 60_000;

interface Kubeconfig {
  readonly clusters: { name: string; cluster: { server: string } }[];
  readonly users: { name: string; user: object }[];
}

/** A kubeconfig like Berth's own, with changes. */
async function kubeconfig(name: string, change: (config: Kubeconfig) => void): Promise<string> {
  const view = ["config", "view", "--raw", "--output=json"];
  const config = JSON.parse(await kubectl(view, { as: "berth" })) as Kubeconfig;
  change(config);
  return write(name, JSON.stringify(config));
}

function write(name: string, text: string): string {
  const file = path.join(DIR, name);
  writeFileSync(file, text);
  return file;
}

async function withEngine<T>(
  options: { kubeconfig?: string; context?: string; namespace?: string; holder?: string },
  use: (engine: KubernetesEngine) => Promise<T>,
): Promise<T> {
  const engine = await KubernetesEngine.open({
    ...{ instance: newInstance(), logger: silent, networkPolicy: "open" },
    ...{ kubeconfig: berthKubeconfig(), ...options },
  });
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

describe("a kubeconfig", () => {
  const open = (options: { kubeconfig?: string; context?: string }) => withEngine(options, async () => {});

  test.each([
    ["that is not there", () => path.join(DIR, "none"), undefined, /none" cannot be used: .*no such file/],
    ["that is not YAML", () => write("text", "{: :"), undefined, /text" cannot be used/],
    ["that is empty", () => write("empty", ""), undefined, /empty" cannot be used/],
    [
      "without such a context",
      () => berthKubeconfig(),
      "other",
      /cannot be used: its context "other" names no/,
    ],
  ])("%s is refused at the start, by name", async (_what, file, context, words) => {
    const options = { kubeconfig: file(), ...(context !== undefined && { context }) };
    const error = await failure(open(options), "INVALID_ARGUMENT");
    expect(error.message).toMatch(words);
    expect(error.message).toContain("Name one with --kubeconfig");
  });

  const info = (file: string) => withEngine({ kubeconfig: file }, (engine) => engine.info());

  test("of a server that cannot be reached says so", async () => {
    const file = await kubeconfig("closed", ({ clusters }) => {
      for (const { cluster } of clusters) cluster.server = "https://127.0.0.1:1";
    });
    const error = await failure(info(file), "ENGINE_UNAVAILABLE");
    expect(error.message).toBe("The API server is not reachable: it refuses connections.");
    const unknown = await kubeconfig("unknown", ({ clusters }) => {
      for (const { cluster } of clusters) cluster.server = "https://nowhere.invalid:6443";
    });
    expect((await failure(info(unknown), "ENGINE_UNAVAILABLE")).message).toMatch(
      /not reachable \((ENOTFOUND|EAI_AGAIN)\)\. Check the address in the kubeconfig/,
    );
  });

  test("whose token the server rejects says so, also if it expired in use", async () => {
    const file = await kubeconfig("token", ({ users }) => {
      for (const user of users) user.user = { token: "wrong" };
    });
    const words = "The API server does not accept the service's credentials. Check the kubeconfig";
    expect((await failure(info(file), "ENGINE_UNAVAILABLE")).message).toContain(words);

    // If its secret or pod is deleted, a token expires at once: no test waits for the ten minutes that a token lives at
    // least.
    const bound = `${PREFIX}-bound`;
    const secret = ["secret", "generic", bound, `--namespace=${NAMESPACE}`];
    await kubectl(["create", ...secret]);
    const binding = ["--bound-object-kind=Secret", `--bound-object-name=${bound}`];
    const token = await kubectl(["create", "token", "berth", `--namespace=${NAMESPACE}`, ...binding]);
    const living = await kubeconfig("living", ({ users }) => {
      for (const user of users) user.user = { token: token.trim() };
    });
    await withEngine({ kubeconfig: living }, async (engine) => {
      await engine.info();
      await kubectl(["delete", "secret", bound, `--namespace=${NAMESPACE}`]);
      // The API server caches valid tokens for some seconds.
      const error = await eventually(
        () =>
          engine.info().then(
            () => undefined,
            (thrown: Error) => thrown,
          ),
        { timeoutMs: 30_000 },
      );
      expect(error).toMatchObject({ reason: "ENGINE_UNAVAILABLE", message: expect.stringContaining(words) });
    });
  });

  test("whose certificate has expired says so", async () => {
    const openssl = (...args: string[]) => promisify(execFile)("openssl", args);
    const [key, cert] = [path.join(DIR, "key.pem"), path.join(DIR, "cert.pem")];
    const dates = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"];
    const ca = path.join(process.env.BERTH_KUBERNETES_STATE ?? "", "pki");
    const request = path.join(DIR, "request.pem");
    await openssl(
      "req",
      "-new",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-subj",
      "/CN=old",
      "-keyout",
      key,
      "-out",
      request,
    );
    const index = write("index.txt", "");
    const settings = `[ca]\ndefault_ca=own\n[own]\ndatabase=${index}\nnew_certs_dir=${DIR}\nserial=${write("serial", "01\n")}\npolicy=any\ndefault_md=sha256\n[any]\ncommonName=supplied\n`;
    const config = write("ca.conf", settings);
    const signer = ["-cert", path.join(ca, "ca.crt"), "-keyfile", path.join(ca, "ca.key")];
    const [notBefore = "", from = "", notAfter = "", to = ""] = dates;
    const times = [
      notBefore.replace("not_before", "startdate"),
      from,
      notAfter.replace("not_after", "enddate"),
      to,
    ];
    await openssl(
      "ca",
      "-batch",
      "-config",
      config,
      ...signer,
      ...times,
      "-in",
      request,
      "-out",
      cert,
      "-notext",
    );
    const base64 = (file: string): string => readFileSync(file).toString("base64");
    const file = await kubeconfig("certificate", ({ users }) => {
      const user = { "client-certificate-data": base64(cert), "client-key-data": base64(key) };
      for (const one of users) one.user = user;
    });
    expect((await failure(info(file), "ENGINE_UNAVAILABLE")).message).toContain(
      "does not accept the service's credentials",
    );
  });

  test("without rights says which one is missing, and to which account", async () => {
    const token = await kubectl(["create", "token", "default", `--namespace=${NAMESPACE}`]);
    const file = await kubeconfig("rights", ({ users }) => {
      for (const user of users) user.user = { token: token.trim() };
    });
    const { message } = await failure(info(file), "ENGINE_UNAVAILABLE");
    expect(message).toContain("lacks a right in the cluster; berth doctor lists them");
    expect(message).toContain(`cannot list resource "pods"`);
  });
});

describe("a namespace that refuses the pod", () => {
  const namespaces: string[] = [];
  afterAll(async () => {
    if (namespaces.length === 0) return;
    await kubectl(["delete", "namespace", "--ignore-not-found", "--wait=false", ...namespaces]);
    await kubectl(["delete", "clusterrole", "--ignore-not-found", ...namespaces]);
  });

  /** A namespace with Berth's rights, and with objects that refuse something. */
  async function namespace(name: string, labels: readonly string[], ...objects: object[]): Promise<string> {
    const made = `${PREFIX}-${name}`;
    namespaces.push(made);
    await kubectl(["create", "namespace", made]);
    if (labels.length > 0) await kubectl(["label", "namespace", made, ...labels]);
    const role = [
      "clusterrole",
      made,
      "--verb=*",
      "--resource=pods,pods/exec,events,leases.coordination.k8s.io",
    ];
    await kubectl(["create", ...role]).catch(() => "");
    const subject = `--serviceaccount=${NAMESPACE}:berth`;
    await kubectl([
      "create",
      "rolebinding",
      "berth",
      `--namespace=${made}`,
      `--clusterrole=${made}`,
      subject,
    ]);
    for (const object of objects)
      await kubectl(["create", `--namespace=${made}`, "--filename=-"], { input: JSON.stringify(object) });
    await eventually(() =>
      kubectl(["get", "serviceaccount", "default", `--namespace=${made}`]).catch(() => undefined),
    );
    return made;
  }

  const refusal = (name: string, reason: "NOT_ALLOWED" | "SANDBOX_LIMIT") =>
    withEngine({ namespace: name }, (engine) => failure(engine.create(spec({ user: "nobody" })), reason));

  test("for its PodSecurity level", async () => {
    const name = await namespace("level", ["pod-security.kubernetes.io/enforce=restricted"]);
    const { message } = await refusal(name, "NOT_ALLOWED");
    expect(message).toContain("The namespace's PodSecurity level refuses the sandbox's pod");
    expect(message).toContain('violates PodSecurity "restricted:latest"');
  });

  test("for its quota, which may have room again later", async () => {
    const quota = {
      apiVersion: "v1",
      kind: "ResourceQuota",
      metadata: { name: "few" },
      spec: { hard: { pods: "0" } },
    };
    const name = await namespace("quota", [], quota);
    const error = await eventually(async () => {
      const found = await refusal(name, "SANDBOX_LIMIT");
      return found.message.includes("exceeded quota: few") && found;
    });
    expect(error.message).toContain("The namespace's quota leaves no room for the sandbox");
    expect(error.message).toContain("requested: pods=1, used: pods=0, limited: pods=0");
    expect(error.retryAfterMs).toBe(5000);
  });

  test("for its limit range", async () => {
    const limits = [{ type: "Container", max: { memory: "64Mi" } }];
    const range = { apiVersion: "v1", kind: "LimitRange", metadata: { name: "small" }, spec: { limits } };
    const name = await namespace("range", [], range);
    const { message } = await refusal(name, "NOT_ALLOWED");
    expect(message).toContain("The namespace's LimitRange refuses the sandbox's limits");
    expect(message).toContain("maximum memory usage per Container is 64Mi, but limit is 268435456");
  });

  test("for its operator's policy", async () => {
    const name = await namespace("policy", []);
    const group = { apiVersion: "admissionregistration.k8s.io/v1", metadata: { name } };
    const rule = { apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"] };
    const message = "every pod needs a team";
    const spec = {
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: "'team' in object.metadata.labels", message }],
    };
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": name } };
    const binding = {
      policyName: name,
      validationActions: ["Deny"],
      matchResources: { namespaceSelector },
    };
    for (const object of [
      { ...group, kind: "ValidatingAdmissionPolicy", spec },
      { ...group, kind: "ValidatingAdmissionPolicyBinding", spec: binding },
    ])
      await kubectl(["create", "--filename=-"], { input: JSON.stringify(object) });
    onTestFinished(async () => {
      await kubectl(["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name]);
    });
    const options = ["run", "berth-other", `--namespace=${name}`, "--image=none", "--dry-run=server"];
    await eventually(() =>
      kubectl(options).then(
        () => false,
        (error: Error) => error.message.includes(message),
      ),
    );
    const { message: words } = await refusal(name, "NOT_ALLOWED");
    expect(words).toContain("The cluster refuses the sandbox's pod");
    expect(words).toContain(message);
  });

  test("because it does not exist", async () => {
    const { message } = await withEngine({ namespace: `${PREFIX}-none` }, (engine) =>
      failure(engine.info(), "ENGINE_UNAVAILABLE"),
    );
    expect(message).toContain("lacks a right");
    const all = { kubeconfig: process.env.BERTH_KUBERNETES_ADMIN ?? "", holder: "one" };
    const error = await withEngine({ namespace: `${PREFIX}-none`, ...all }, async () => {}).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({
      reason: "ENGINE_UNAVAILABLE",
      message: expect.stringContaining(`has no namespace "${PREFIX}-none". Create it`),
    });
  });
});

describe("a sandbox on the cluster", () => {
  const app = useApp({ engine: "kubernetes" });

  test(
    "of an image that cannot be pulled is not created, and says why",
    async () => {
      const image = "127.0.0.1:1/none:1";
      const error = await failureOf(app.client.createSandbox({ image }));
      expect(error).toMatchObject({ code: "FAILED_PRECONDITION", reason: "IMAGE_UNAVAILABLE" });
      expect(error.message).toContain(`The image "${image}" cannot be pulled: ErrImagePull`);
      expect(error.message).toContain("connection refused");
    },
    CALL_MS,
  );

  test("with an id that is taken is refused", async () => {
    const request = { sandbox_id: "taken" };
    await app.client.call("SandboxService/CreateSandbox", request);
    expect(await failureOf(app.client.call("SandboxService/CreateSandbox", request))).toMatchObject({
      code: "ALREADY_EXISTS",
      reason: "SANDBOX_EXISTS",
      metadata: { sandbox_id: "taken" },
    });
    await app.client.deleteSandbox("taken");
  });

  test("whose pod was deleted ends as removed, and so do its commands", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    const exec = app.client.exec(id, "echo started; sleep 600");
    await exec.until("started");
    const { name } = await podOf(id);
    await kubectl(["delete", "pod", name, `--namespace=${NAMESPACE}`]);
    expect((await exec.result).exit).toMatchObject({ cause: "EXIT_CAUSE_SANDBOX_TERMINATED" });
    const { termination } = await eventually(
      async () => {
        const sandbox = await app.client.getSandbox(id);
        return sandbox.state === "SANDBOX_STATE_TERMINATED" && sandbox;
      },
      { timeoutMs: CALL_MS },
    );
    expect(termination?.cause).toBe("TERMINATION_CAUSE_REMOVED_EXTERNALLY");
  });
});

describe("a pod that others change", async () => {
  const { engine } = await openEngine();
  const patch = async (pod: string, metadata: object): Promise<void> => {
    const change = `--patch=${JSON.stringify({ metadata })}`;
    await kubectl(["patch", "pod", pod, `--namespace=${NAMESPACE}`, "--type=merge", change]);
  };

  test("is a sandbox with less than it had, never with another's rights; without its label it is gone", async () => {
    const { ref } = await engine.create(spec());
    const { name } = parseRef(ref);
    await patch(name, { annotations: { "berth.dev/isolation": "VIRTUAL", "berth.dev/generation": null } });
    expect((await engine.list()).find((one) => one.ref === ref)).toMatchObject({
      isolation: "CONTAINER",
      generation: 0,
    });
    expect((await run(engine, ref, ["true"])).exitCode).toBe(0);

    const abort = new AbortController();
    const events = engine.events(abort.signal)[Symbol.asyncIterator]();
    const next = events.next();
    await patch(name, { labels: { "berth.dev/instance": null } });
    expect((await next).value).toMatchObject({ type: "removed", ref });
    abort.abort();
    expect(await engine.list()).not.toContainEqual(expect.objectContaining({ ref }));
    await failure(run(engine, ref, ["true"]), "SANDBOX_TERMINATED");
    await engine.remove(ref);
    await expect(kubectl(["get", "pod", name, `--namespace=${NAMESPACE}`])).rejects.toThrow("NotFound");
  });

  test("of the same name belongs to others and is left alone", async () => {
    const { ref } = await engine.create(spec());
    const { name } = parseRef(ref);
    await engine.remove(`${name}.00000000-0000-0000-0000-000000000000`);
    await expect(run(engine, ref, ["true"])).resolves.toMatchObject({ exitCode: 0 });
    await engine.remove(ref);
  });
});
