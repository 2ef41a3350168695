import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import path from "node:path";
import type { Duplex } from "node:stream";
import { kubectl } from "./kubernetes.ts";
import { newDataDir } from "./settings.ts";

/** A call on its way to the API server. */
export interface ApiRequest {
  readonly method: string;
  /** Path on the server: `/api/v1/namespaces/NS/pods/NAME`. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** Whether it is a watch. */
  readonly isWatch: boolean;
}

/**
 * What happens to a call. `hang`: accepts it and never answers. `unanswered`: carries it out and never answers. A
 * status: refuses it in the API server's form; with `made`, after the API server has carried it out. `before`: carries it
 * out and answers once that has resolved. `silent`: opens a watch without events. `end`: opens a watch and ends it normally
 * at once.
 */
export type ApiFault =
  | "hang"
  | "unanswered"
  | "silent"
  | "end"
  | { readonly before: () => Promise<void> }
  | { readonly status: number; readonly reason?: string; readonly message?: string; readonly made?: boolean };

/** A proxy in front of the API server that makes calls fail on purpose. */
export class ApiProxy implements AsyncDisposable {
  /** For the service account `berth`, through this proxy. */
  readonly kubeconfig: string;
  /** Decides about each call, possibly later. Undefined: forwards it. */
  fault: (request: ApiRequest) => ApiFault | undefined | Promise<ApiFault | undefined> = () => undefined;
  /** Every call, in order. */
  readonly requests: ApiRequest[] = [];
  readonly #server = http.createServer();
  readonly #sockets = new Set<Duplex>();
  readonly #watches = new Set<http.ServerResponse>();
  readonly #target: URL;
  readonly #ca: Buffer;

  private constructor(config: string, port: number, server: http.Server) {
    this.#server = server;
    const parsed = JSON.parse(config);
    const [{ cluster }] = parsed.clusters;
    this.#target = new URL(cluster.server);
    this.#ca = Buffer.from(cluster["certificate-authority-data"], "base64");
    this.kubeconfig = path.join(newDataDir(), "kubeconfig");
    // Only the connection between Berth and the proxy is without TLS.
    parsed.clusters[0].cluster = { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true };
    writeFileSync(this.kubeconfig, JSON.stringify(parsed));
    server.on("connection", (socket: Socket) => this.#keep(socket));
    server.on("request", (request, answer) => void this.#take(request, answer));
    server.on("upgrade", (request, socket) => void this.#upgrade(request, socket));
  }

  static async open(): Promise<ApiProxy> {
    const config = await kubectl(["config", "view", "--raw", "--output=json"], { as: "berth" });
    const server = http.createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new ApiProxy(config, (server.address() as AddressInfo).port, server);
  }

  /** Breaks every open watch. */
  cutWatches(): void {
    for (const answer of this.#watches) answer.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  async #take(request: http.IncomingMessage, answer: http.ServerResponse): Promise<void> {
    const asked = this.#ask(request);
    const fault = await this.fault(asked);
    if (fault === "hang") return;
    if (fault === "silent" || fault === "end") {
      answer.writeHead(200, { "content-type": "application/json" });
      answer.flushHeaders();
      if (fault === "end") answer.end();
      return;
    }
    if (typeof fault === "object" && "status" in fault && !fault.made) {
      refuse(answer, fault);
      return;
    }
    const { method, url = "", headers } = request;
    const to = new URL(url, this.#target);
    const options = { method, headers: { ...headers, host: to.host }, ca: this.#ca };
    const onward = https.request(to, options, async (from) => {
      if (fault === "unanswered") {
        from.resume();
        return;
      }
      if (fault !== undefined && "before" in fault) await fault.before();
      else if (fault !== undefined) {
        from.resume().once("end", () => refuse(answer, fault));
        return;
      }
      answer.writeHead(from.statusCode ?? 502, from.headers);
      answer.flushHeaders();
      if (asked.isWatch) {
        this.#watches.add(answer);
        answer.once("close", () => this.#watches.delete(answer));
      }
      from.once("error", () => answer.destroy());
      from.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.once("close", () => onward.destroy());
    request.pipe(onward);
  }

  async #upgrade(request: http.IncomingMessage, socket: Duplex): Promise<void> {
    socket.on("error", () => {});
    const fault = await this.fault(this.#ask(request));
    if (fault === "hang") return;
    if (typeof fault === "object" && "status" in fault && !fault.made) {
      const body = JSON.stringify({ kind: "Status", reason: fault.reason, message: "a fault of the test" });
      const head = `HTTP/1.1 ${fault.status} Refused\r\ncontent-type: application/json\r\nconnection: close`;
      socket.end(`${head}\r\n\r\n${body}`);
      return;
    }
    const to = new URL(request.url ?? "", this.#target);
    const onward = https.request(to, { headers: { ...request.headers, host: to.host }, ca: this.#ca });
    onward.on("error", () => socket.destroy());
    onward.on("response", (refusal) => {
      const type = refusal.headers["content-type"] ?? "text/plain";
      socket.write(
        `HTTP/1.1 ${refusal.statusCode} Refused\r\ncontent-type: ${type}\r\nconnection: close\r\n\r\n`,
      );
      refusal.pipe(socket);
    });
    onward.on("upgrade", (from, far: Socket, head: Buffer) => {
      this.#keep(far);
      const lines = [`HTTP/1.1 101 Switching Protocols`];
      for (let at = 0; at < from.rawHeaders.length; at += 2)
        lines.push(`${from.rawHeaders[at]}: ${from.rawHeaders[at + 1]}`);
      socket.write(`${lines.join("\r\n")}\r\n\r\n`);
      if (fault !== "silent") {
        socket.write(head);
        far.pipe(socket);
      }
      socket.pipe(far);
      far.on("error", () => socket.destroy()).on("close", () => socket.destroy());
      socket.on("close", () => far.destroy());
    });
    onward.end();
  }

  #ask({ method = "", url = "" }: http.IncomingMessage): ApiRequest {
    const { pathname, searchParams: query } = new URL(url, this.#target);
    const asked = { method, path: pathname, query, isWatch: query.get("watch") === "1" };
    this.requests.push(asked);
    return asked;
  }

  #keep(socket: Duplex): void {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
  }
}

function refuse(answer: http.ServerResponse, fault: Extract<ApiFault, { readonly status: number }>): void {
  const { status, reason = "", message = "refused on purpose" } = fault;
  const body = JSON.stringify({
    kind: "Status",
    apiVersion: "v1",
    status: "Failure",
    reason,
    message,
    code: status,
  });
  answer.writeHead(status, {
    "content-type": "application/json",
    ...(status === 429 && { "retry-after": "1" }),
  });
  answer.end(body);
}
