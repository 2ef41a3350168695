import { afterAll, describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import {
  clusterPartPid,
  holdClusterPart,
  killClusterPart,
  kubectl,
  NAMESPACE,
} from "../../support/kubernetes.ts";

const PREFIX = `cluster-${process.pid}`;
const LABEL = "berth.dev/test-cluster";

/** An idle pod that Berth's service account may create. */
function pod(name: string, image: string, claim?: string, more: object = {}): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `${PREFIX}-${name}`, labels: { [LABEL]: PREFIX } },
    spec: {
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      ...more,
      terminationGracePeriodSeconds: 0,
      containers: [
        {
          name: "main",
          image,
          imagePullPolicy: "Never",
          command: ["/bin/sh", "-c", "while :; do sleep 3600; done"],
          volumeMounts: claim === undefined ? [] : [{ name: "data", mountPath: "/data" }],
        },
      ],
      volumes: claim === undefined ? [] : [{ name: "data", persistentVolumeClaim: { claimName: claim } }],
    },
  });
}

function claim(name: string, source?: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: `${PREFIX}-${name}`, labels: { [LABEL]: PREFIX } },
    spec: {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage: "1Gi" } },
      dataSource: source && { kind: "PersistentVolumeClaim", name: `${PREFIX}-${source}` },
    },
  });
}

const asBerth = (args: readonly string[], input?: string): Promise<string> =>
  kubectl(args, input === undefined ? { as: "berth" } : { as: "berth", input });

async function start(manifest: string): Promise<void> {
  await asBerth(["create", "--filename=-", "--validate=false"], manifest);
  const { metadata } = JSON.parse(manifest);
  await asBerth(["wait", "--for=condition=Ready", `pod/${metadata.name}`, "--timeout=60s"]);
}

const exec = (name: string, shell: string): Promise<string> =>
  asBerth(["exec", `${PREFIX}-${name}`, "--", "/bin/sh", "-c", shell]);

afterAll(async () => {
  await kubectl(["delete", "pods,pvc", `--namespace=${NAMESPACE}`, `--selector=${LABEL}=${PREFIX}`]);
});

describe("the cluster", () => {
  test.each(["berth/base", "berth/test", "berth/busybox"])("runs a pod of %s", async (image) => {
    const name = image.replace("/", "-");
    await start(pod(name, `${image}:latest`));
    expect(await exec(name, "echo $((6 * 7))")).toBe("42\n");
  });

  test("gives a pod the rights of its service account, at the address of the API server's Service", async () => {
    const account = { serviceAccountName: "berth", automountServiceAccountToken: true };
    await start(pod("inside", "berth/test:latest", undefined, account));
    const program = `
import json, os, ssl, urllib.request
files = "/var/run/secrets/kubernetes.io/serviceaccount/"
address = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + "/api/v1/namespaces/berth/pods"
request = urllib.request.Request(address, headers={"authorization": "Bearer " + open(files + "token").read()})
with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=files + "ca.crt")) as answer:
    print([pod["metadata"]["name"] for pod in json.load(answer)["items"]])
`;
    const names = await asBerth(["exec", `${PREFIX}-inside`, "--", "python3", "-c", program]);
    expect(names).toContain(`${PREFIX}-inside`);
  });

  test("has volumes, which it clones and deletes with their claims", async () => {
    await asBerth(["create", "--filename=-", "--validate=false"], claim("original"));
    await start(pod("writer", "berth/busybox:latest", `${PREFIX}-original`));
    await exec("writer", "echo kept >/data/file");

    await asBerth(["create", "--filename=-", "--validate=false"], claim("clone", "original"));
    await start(pod("reader", "berth/busybox:latest", `${PREFIX}-clone`));
    expect(await exec("reader", "cat /data/file; echo other >/data/file")).toBe("kept\n");
    expect(await exec("writer", "cat /data/file")).toBe("kept\n");

    await kubectl(["delete", `pod/${PREFIX}-reader`, `pvc/${PREFIX}-clone`, `--namespace=${NAMESPACE}`]);
    await eventually(
      async () => {
        const volumes = await kubectl(["get", "persistentvolumes", "--output=json"]);
        return !volumes.includes(`${PREFIX}-clone`);
      },
      { timeoutMs: 30_000 },
    );
  });

  const PARTS = ["apiserver", "containerd", "etcd", "kubelet"] as const;
  test.each(PARTS)("restarts a killed %s, and pods live on", async (part) => {
    await start(pod(part, "berth/busybox:latest"));
    await exec(part, "echo kept >/tmp/file");
    await killClusterPart(part);
    expect(await onceBack(() => exec(part, "cat /tmp/file"))).toBe("kept\n");
  });

  test("keeps a killed part down as long as a test wants", async () => {
    const version = (): Promise<string> => asBerth(["version", "--request-timeout=5s"]);
    {
      using _held = holdClusterPart("apiserver");
      // Twice as long as a part that is not held takes to restart.
      const until = performance.now() + 2000;
      while (performance.now() < until) await expect(version()).rejects.toThrow("kubectl version");
      expect(clusterPartPid("apiserver")).toBeUndefined();
    }
    expect(await onceBack(version)).toContain("Server Version");
  });
});

/** The first successful answer once the cluster serves again. */
function onceBack(ask: () => Promise<string>): Promise<string> {
  return eventually(() => ask().catch(() => undefined), { timeoutMs: 60_000 });
}
