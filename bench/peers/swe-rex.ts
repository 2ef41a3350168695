import type { Containers } from "./containers.ts";
import { formOf, HttpClient } from "./http.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox, type Result } from "./peer.ts";
import type { PythonPeers } from "./python.ts";

const PORT = 8000;
const TOKEN = "bench";
const HEADERS = { "x-api-key": TOKEN };
const BOUNDARY = "berth-bench-peers";
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;

/** SWE-ReX's server in a container, called in the way of its RemoteRuntime. */
export function sweRex({ image, signal }: PeerContext, containers: Containers, python: PythonPeers): Peer {
  return {
    name: "SWE-ReX",
    pids: [],
    create: async () => {
      const { id, address, remove } = await containers.daemon(
        {
          ...{ image, port: PORT, binds: python.binds },
          command: [python.python, "-m", "swerex.server", "--auth-token", TOKEN, "--port", String(PORT)],
          ready: async (address) => (await fetch(`http://${address}/is_alive`, { headers: HEADERS })).ok,
        },
        signal,
      );
      return sandboxOf(id, address, remove);
    },
    close: async () => {},
  };
}

function sandboxOf(container: string, address: string, remove: () => Promise<void>): PeerSandbox {
  const client = new HttpClient(address);
  const post = async (path: string, request: object): Promise<Buffer> => {
    const chunks: Buffer[] = [];
    const headers = { ...HEADERS, "content-type": "application/json" };
    await client.post(path, headers, Buffer.from(JSON.stringify(request)), (chunk) => chunks.push(chunk));
    return Buffer.concat(chunks);
  };
  return {
    containerId: async () => container,
    run: async (line, { timeoutMs } = {}): Promise<Result> => {
      const timeout = timeoutMs === undefined ? null : timeoutMs / 1000;
      const answer = await post("/execute", { command: line, shell: true, timeout });
      const { stdout, stderr, exit_code: exitCode } = JSON.parse(answer.toString());
      return { stdout: Buffer.from(stdout), stderr: Buffer.from(stderr), exitCode };
    },
    upload: (path, bytes) => {
      const disposition = (name: string): string =>
        `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"`;
      const { parts, length } = formOf(
        `${disposition("target_path")}\r\n\r\n${path}\r\n${disposition("file")}; filename="file"\r\n\r\n`,
        bytes,
        `\r\n--${BOUNDARY}--\r\n`,
      );
      return client.send("/upload", { ...HEADERS, "content-type": FORM }, parts, length);
    },
    // It only reads text, as JSON.
    download: async (path, bytes) => {
      const counter = new Counter();
      counter.take(Buffer.from(JSON.parse((await post("/read_file", { path })).toString()).content));
      counter.expect(bytes);
    },
    remove: async () => {
      client.close();
      await remove();
    },
  };
}
