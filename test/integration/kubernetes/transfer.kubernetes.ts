import { once } from "node:events";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { Api } from "../../../src/engine/kubernetes/api.ts";
import { ExecSocket } from "../../../src/engine/kubernetes/exec-socket.ts";
import { useApp } from "../../support/app.ts";
import { berthKubeconfig, kubectl, NAMESPACE, podOf } from "../../support/kubernetes.ts";
import { percentile, timed } from "../../support/measure.ts";
import { scaled } from "../../support/scale.ts";

const service = useApp({ engine: "kubernetes", kubeconfig: berthKubeconfig() });
const MIB = 1 << 20;

/** A listener in the pod that reads or writes as many bytes as requested. */
const LISTENER = `
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("listens", flush=True)
block = bytes(1 << 18)
while True:
    peer, _ = server.accept()
    what, count = peer.recv(64).decode().split()
    left = int(count)
    with peer, open("/tmp/direct", "wb" if what == "put" else "rb") as file:
        if what == "put":
            peer.send(b"!")
            while left > 0:
                data = peer.recv(1 << 18)
                left -= len(data)
                file.write(data)
            peer.send(b"!")
        else:
            peer.sendfile(file, 0, left)
`;

function* chunks(bytes: number, size = 256 << 10): Generator<Buffer> {
  const chunk = Buffer.alloc(size, "x");
  for (let sent = 0; sent < bytes; sent += size) yield chunk.subarray(0, Math.min(size, bytes - sent));
}

/** How many times each path is measured, alternating with the others. */
const ROUNDS = 3;
/**
 * How much longer a file may take than a bare stream of the API. Usually 3 to 5 if two busy cores carry the cluster,
 * the service and this test's client, which a bare stream does not need.
 */
const MOST_TIMES = 10;

test("a file takes at most a few times as long as a bare stream of the API; figures of a direct connection", async () => {
  const mib = scaled(200, 40);
  const { client } = service;
  const bytes = mib * MIB;
  const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 512 * MIB } });
  const api = await Api.open({ kubeconfig: berthKubeconfig() });
  const { name: pod } = await podOf(id);
  const listener = client.exec(id, ["python3", "-c", LISTENER]);
  await listener.until("listens");
  const ip = await kubectl([
    "get",
    "pod",
    pod,
    `--namespace=${NAMESPACE}`,
    "--output=jsonpath={.status.podIP}",
  ]);

  const upload = async (): Promise<void> => {
    const header = { sandbox_id: id, path: "/tmp/file" };
    function* requests() {
      yield { header };
      for (const chunk of chunks(bytes)) yield { chunk };
    }
    const { file } = await client.upload("FileService/UploadFile", requests());
    expect(file.size_bytes).toBe(bytes);
  };
  const download = async (): Promise<void> => {
    let received = 0;
    const target = { sandbox_id: id, path: "/tmp/file" };
    for await (const { chunk } of client.stream("FileService/DownloadFile", target))
      received += chunk?.length ?? 0;
    expect(received).toBe(bytes);
  };
  const rawUpload = async (): Promise<void> => {
    const closed = Promise.withResolvers<unknown>();
    const streams = { stdin: true, tty: false };
    const command = ["sh", "-c", "cat >/tmp/raw; stat -c %s /tmp/raw"];
    let said = "";
    const data = (_: string, chunk: Buffer): void => {
      said += chunk;
    };
    const socket = await ExecSocket.open(api, pod, command, streams, { data, close: closed.resolve });
    for (const chunk of chunks(bytes)) await socket.write(chunk);
    socket.closeStdin();
    await closed.promise;
    expect(said).toBe(`${bytes}\n`);
  };
  const rawDownload = async (): Promise<void> => {
    const closed = Promise.withResolvers<unknown>();
    let received = 0;
    const data = (_: string, chunk: Buffer): void => {
      received += chunk.length;
    };
    const streams = { stdin: false, tty: false };
    await ExecSocket.open(api, pod, ["cat", "/tmp/raw"], streams, { data, close: closed.resolve });
    await closed.promise;
    expect(received).toBe(bytes);
  };
  const directUpload = async (): Promise<void> => {
    const socket = connect(7000, ip);
    socket.write(`put ${bytes}`);
    await once(socket, "data");
    for (const chunk of chunks(bytes)) if (!socket.write(chunk)) await once(socket, "drain");
    await once(socket, "data");
    socket.destroy();
  };
  const directDownload = async (): Promise<void> => {
    const socket = connect(7000, ip);
    socket.write(`get ${bytes}`);
    let received = 0;
    for await (const chunk of socket) received += (chunk as Buffer).length;
    expect(received).toBe(bytes);
  };
  const ways = { upload, rawUpload, directUpload, download, rawDownload, directDownload };
  const times = Object.fromEntries(Object.keys(ways).map((name) => [name, [] as number[]]));
  const cpus = Object.fromEntries(Object.keys(ways).map((name) => [name, [] as number[]]));
  for (let i = 0; i < ROUNDS; i++) {
    for (const [name, act] of Object.entries(ways)) {
      const before = process.cpuUsage();
      times[name]?.push(await timed(act));
      const { user, system } = process.cpuUsage(before);
      cpus[name]?.push((user + system) / 1000);
    }
  }
  const median = Object.fromEntries(Object.entries(times).map(([name, all]) => [name, percentile(all, 0.5)]));
  for (const [name, ms] of Object.entries(median)) {
    const rate = (bytes / 1e3 / ms).toFixed(0);
    console.info(
      `${mib} MiB, ${name}: ${rate} MB/s, ${percentile(cpus[name] ?? [], 0.5).toFixed(0)} ms of CPU here`,
    );
  }
  expect((median.upload ?? 0) / (median.rawUpload ?? 0)).toBeLessThan(MOST_TIMES);
  expect((median.download ?? 0) / (median.rawDownload ?? 0)).toBeLessThan(MOST_TIMES);
  await client.deleteSandbox(id);
}, 300_000);
