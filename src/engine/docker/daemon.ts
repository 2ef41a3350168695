import { readFileSync } from "node:fs";
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import path from "node:path";
import { inspect } from "node:util";
import Docker, { type DockerOptions } from "dockerode";
import { abortError, BerthError, throwIfAborted } from "../../base/errors.ts";
import { isDockerHost } from "../docker-host.ts";
import type { OutputStream } from "../port.ts";
import { limitAnswers } from "./answers.ts";
import { NoAnswerError, translateError } from "./errors.ts";

/** Where the daemon of this machine listens by default. */
export const DEFAULT_SOCKET = "/var/run/docker.sock";
/** A burst of calls opens many connections. Each idle one costs the daemon a descriptor, and both sides memory. */
const CONNECTIONS = { keepAlive: true, maxFreeSockets: 4 };

/** Limits of one call. */
export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Default: the daemon's `callTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
}

/**
 * The connection to a Docker daemon. Everything goes through {@link call}, which enforces a timeout and fails with a
 * `BerthError`.
 */
export class Daemon {
  /** Path of the daemon's socket on this machine; undefined if it is reached over the network. */
  readonly socketPath: string | undefined;
  readonly #docker: Docker;
  readonly #agent: HttpAgent;
  readonly #callTimeoutMs: number;
  #isPodman: boolean | undefined;

  /**
   * `host` is written as in `DOCKER_HOST`, which is its default: `unix:///path` or `tcp://host:port`.
   * @throws `INVALID_ARGUMENT` where that variable says something else, such as `ssh://…`
   */
  constructor(options: { readonly host?: string | undefined; readonly callTimeoutMs: number }) {
    const url = new URL(options.host || hostOfEnvironment() || `unix://${DEFAULT_SOCKET}`);
    this.#callTimeoutMs = options.callTimeoutMs;
    if (url.protocol === "unix:") {
      this.socketPath = url.pathname;
      this.#agent = new HttpAgent(CONNECTIONS);
      // An explicit undefined keeps the driver from using DOCKER_HOST.
      this.#docker = connect({
        socketPath: url.pathname,
        host: undefined,
        protocol: "http",
        agent: this.#agent,
      });
    } else {
      const tls = tlsFiles();
      this.#agent = tls ? new HttpsAgent(CONNECTIONS) : new HttpAgent(CONNECTIONS);
      const protocol = tls ? "https" : "http";
      const port = url.port || (tls ? 2376 : 2375);
      this.#docker = connect({ host: url.hostname, port, protocol, agent: this.#agent, ...tls });
    }
  }

  /**
   * Runs one call. `doing` completes "Docker failed while …". `run` should pass its signal to the driver. The signal is
   * aborted with the caller's or at the timeout; then the call fails at once, even if the driver does not react.
   */
  async call<T>(
    doing: string,
    run: (docker: Docker, abortSignal: AbortSignal) => Promise<T>,
    { signal, timeoutMs = this.#callTimeoutMs }: CallOptions = {},
  ): Promise<T> {
    throwIfAborted(signal);
    const abort = new AbortController();
    const stopped = Promise.withResolvers<never>();
    const stop = (error: Error) => {
      stopped.reject(error);
      abort.abort(error);
    };
    const onAbort = () => signal && stop(abortError(signal));
    const timer = setTimeout(() => stop(new NoAnswerError(`no answer in ${timeoutMs} ms`)), timeoutMs);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([run(this.#docker, abort.signal), stopped.promise]);
    } catch (error) {
      throw translateError(error, doing, signal);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Whether it is Podman's service, whose version of Docker's API has differences. */
  async isPodman(signal?: AbortSignal): Promise<boolean> {
    if (this.#isPodman === undefined) {
      const { Components } = await this.call("asking for its version", (docker) => docker.version(), {
        signal,
      });
      this.#isPodman = Components?.some(({ Name }) => Name === "Podman Engine") ?? false;
    }
    return this.#isPodman;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/**
 * The driver's types lack its `agent` option. For every request the driver formats its options for a debug log, even
 * when that is off, and the agent references every open connection. With 30 connections the formatting took longer than
 * the requests, so the agent formats as a plain word.
 */
function connect(options: DockerOptions & { readonly agent: HttpAgent }): Docker {
  Object.defineProperty(options.agent, inspect.custom, { value: () => "Agent" });
  const docker = new Docker(options);
  limitAnswers(docker.modem);
  return docker;
}

/** Reads the files that Docker's environment variables name, as Docker's command line does. */
function tlsFiles(): { ca: Buffer; cert: Buffer; key: Buffer } | undefined {
  const { DOCKER_TLS_VERIFY, DOCKER_CERT_PATH } = process.env;
  if (!DOCKER_TLS_VERIFY || !DOCKER_CERT_PATH) return undefined;
  const read = (name: string) => readFileSync(path.join(DOCKER_CERT_PATH, name));
  return { ca: read("ca.pem"), cert: read("cert.pem"), key: read("key.pem") };
}

const HEADER_BYTES = 8;

/**
 * Parses the frames in which Docker sends stdout and stderr over one connection: a byte for the stream, three zeros,
 * the payload's length as 32 bits big-endian, the payload. Payloads are passed on as they arrive, as views of the
 * chunks, so the work is linear for frames of any size.
 */
export class Demux {
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  #payloadLeft = 0;
  readonly #onData: (stream: OutputStream, chunk: Buffer) => void;

  constructor(onData: (stream: OutputStream, chunk: Buffer) => void) {
    this.#onData = onData;
  }

  /** Whether the last frame is incomplete. */
  get insideFrame(): boolean {
    return this.#payloadLeft > 0 || (this.#headerBytes > 0 && this.#headerBytes < HEADER_BYTES);
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#payloadLeft === 0) {
        if (this.#headerBytes === HEADER_BYTES) this.#headerBytes = 0;
        const taken = chunk.copy(this.#header, this.#headerBytes, at);
        this.#headerBytes += taken;
        at += taken;
        if (this.#headerBytes < HEADER_BYTES) return;
        this.#payloadLeft = this.#header.readUInt32BE(4);
        continue;
      }
      const payload = chunk.subarray(at, at + this.#payloadLeft);
      at += payload.length;
      this.#payloadLeft -= payload.length;
      this.#onData(this.#header[0] === 2 ? "stderr" : "stdout", payload);
    }
  }
}

function hostOfEnvironment(): string | undefined {
  const host = process.env.DOCKER_HOST;
  if (!host || isDockerHost(host)) return host;
  throw new BerthError(
    "INVALID_ARGUMENT",
    `DOCKER_HOST: ${JSON.stringify(host)} is not the address of a daemon that Berth can reach. Name one with --docker-host, as unix:///var/run/docker.sock or tcp://HOST:2375.`,
  );
}
