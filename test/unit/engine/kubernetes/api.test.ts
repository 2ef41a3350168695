import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Api } from "../../../../src/engine/kubernetes/api.ts";

async function open(cluster: string): Promise<Api> {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-kubeconfig-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const kubeconfig = path.join(directory, "config");
  await writeFile(
    kubeconfig,
    `apiVersion: v1
kind: Config
current-context: own
contexts: [{ name: own, context: { cluster: own, user: own } }]
users: [{ name: own, user: {} }]
clusters: [{ name: own, cluster: ${cluster} }]
`,
  );
  return Api.open({ kubeconfig });
}

test("an API server without TLS must be intended", async () => {
  await expect(open("{ server: 'http://127.0.0.1:8001' }")).rejects.toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: expect.stringContaining("http://127.0.0.1:8001 has no TLS. If that is intended, set"),
  });
  const intended = await open("{ server: 'http://127.0.0.1:8001', insecure-skip-tls-verify: true }");
  expect(intended.server).toBe("http://127.0.0.1:8001");
  expect((await open("{ server: 'https://127.0.0.1:6443' }")).server).toBe("https://127.0.0.1:6443");
});
