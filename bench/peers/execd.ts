import type { Containers } from "./containers.ts";
import { formOf, HttpClient } from "./http.ts";
import { Counter, type Peer, type PeerContext, type PeerSandbox, type Result } from "./peer.ts";

const PORT = 44772;
const BOUNDARY = "berth-bench-peers";
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;

interface Event {
  readonly type: string;
  readonly text?: string;
  readonly error?: { readonly evalue: string };
}

/**
 * OpenSandbox's daemon in a container, without its server. It reports output as lines of text.
 * @param binary a statically linked `execd`.
 */
export function execd({ image, signal }: PeerContext, containers: Containers, binary: string): Peer {
  return {
    name: "OpenSandbox execd",
    pids: [],
    create: async () => {
      const { id, address, remove } = await containers.daemon(
        {
          ...{ image, port: PORT, binds: [`${binary}:/usr/local/bin/execd:ro`] },
          // By default it holds each response open for a second after its end.
          command: ["/usr/local/bin/execd", "--graceful-shutdown-timeout", "0s", "--log-level", "3"],
          ready: async (address) => (await fetch(`http://${address}/ping`)).ok,
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
  return {
    containerId: async () => container,
    run: async (line, { timeoutMs } = {}): Promise<Result> => {
      const chunks: Buffer[] = [];
      const request = { command: line, ...(timeoutMs !== undefined && { timeout: timeoutMs }) };
      const headers = { "content-type": "application/json" };
      await client.post("/command", headers, Buffer.from(JSON.stringify(request)), (chunk) =>
        chunks.push(chunk),
      );
      const text = { stdout: "", stderr: "" };
      let exitCode: number | undefined;
      for (const part of Buffer.concat(chunks).toString().split("\n\n")) {
        if (part === "") continue;
        const event = JSON.parse(part) as Event;
        // It removes line ends from the output, and its own clients add them again.
        if (event.type === "stdout" || event.type === "stderr") text[event.type] += `${event.text}\n`;
        else if (event.type === "execution_complete") exitCode = 0;
        else if (event.type === "error") exitCode = Number(event.error?.evalue);
      }
      return { stdout: Buffer.from(text.stdout), stderr: Buffer.from(text.stderr), exitCode };
    },
    upload: (path, bytes) => {
      const part = (name: string, type: string): string =>
        `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"; filename="${name}"\r\ncontent-type: ${type}\r\n\r\n`;
      const metadata = JSON.stringify({ path, owner: "root", group: "root", mode: 644 });
      const { parts, length } = formOf(
        `${part("metadata", "application/json")}${metadata}\r\n${part("file", "application/octet-stream")}`,
        bytes,
        `\r\n--${BOUNDARY}--\r\n`,
      );
      return client.send("/files/upload", { "content-type": FORM }, parts, length);
    },
    download: async (path, bytes) => {
      const counter = new Counter();
      await client.get(`/files/download?path=${encodeURIComponent(path)}`, counter.take);
      counter.expect(bytes);
    },
    remove: async () => {
      client.close();
      await remove();
    },
  };
}
