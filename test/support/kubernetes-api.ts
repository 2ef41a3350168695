import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { onTestFinished } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { Api } from "../../src/engine/kubernetes/api.ts";

/**
 * Starts an API server for the time of the test. Returns its cluster, for a kubeconfig.
 * @param onExec takes the streams of each process. Default: none can be started.
 */
export async function serveApi(
  answer: RequestListener,
  onExec?: (socket: WebSocket) => void,
): Promise<string> {
  const server = createServer(answer);
  if (onExec !== undefined) new WebSocketServer({ server }).on("connection", onExec);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return `{ server: 'http://127.0.0.1:${port}', insecure-skip-tls-verify: true }`;
}

/** The API of a cluster that a test's kubeconfig describes, such as `{ server: 'https://127.0.0.1:6443' }`. */
export async function openApi(cluster: string, user = "{}"): Promise<Api> {
  return Api.open({ kubeconfig: await writeKubeconfig(cluster, user) });
}

/** Writes a kubeconfig for the time of the test. */
export async function writeKubeconfig(cluster: string, user = "{}"): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-kubeconfig-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const kubeconfig = path.join(directory, "config");
  await writeFile(
    kubeconfig,
    `apiVersion: v1
kind: Config
current-context: own
contexts: [{ name: own, context: { cluster: own, user: own } }]
users: [{ name: own, user: ${user} }]
clusters: [{ name: own, cluster: ${cluster} }]
`,
  );
  return kubeconfig;
}
