import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";

/** How a registry responds to a request for the image's layer, or to any request. */
export type Behaviour =
  | "serves"
  /** Sends the layer over about two seconds. */
  | "slow"
  /** Sends half of the layer, then nothing. */
  | "stalls"
  /** Answers nothing at all. */
  | "silent"
  /** Fails with an error of 3 MiB. */
  | "talks"
  | "unknown image";

/** An image registry on this machine that has one image under every name. */
export class TestRegistry implements AsyncDisposable {
  behaviour: Behaviour = "serves";
  /** How often a layer was requested, and how many of those connections broke. */
  layerRequests = 0;
  brokenOff = 0;
  readonly #blobs = new Map<string, Buffer>();
  readonly #manifest: Buffer;
  readonly #layer: string;
  readonly #server = createServer((request, response) => this.#answer(request.url ?? "", response));

  /** @param settings of its image, in addition to its user. */
  constructor(settings: object = {}) {
    const tar = layer();
    this.#layer = this.#add(gzipSync(tar));
    const config = this.#add(
      Buffer.from(
        JSON.stringify({
          architecture: process.arch === "arm64" ? "arm64" : "amd64",
          os: "linux",
          config: { User: "someone", ...settings },
          rootfs: { type: "layers", diff_ids: [digest(tar)] },
        }),
      ),
    );
    const describe = (type: string, of: string) => ({
      mediaType: `application/vnd.docker.${type}`,
      digest: of,
      size: this.#blobs.get(of)?.length,
    });
    this.#manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: "application/vnd.docker.distribution.manifest.v2+json",
        config: describe("container.image.v1+json", config),
        layers: [describe("image.rootfs.diff.tar.gzip", this.#layer)],
      }),
    );
  }

  /** Returns the prefix of its images' names. */
  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #answer(url: string, response: ServerResponse): void {
    if (this.behaviour === "silent") return;
    response.setHeader("Docker-Distribution-Api-Version", "registry/2.0");
    if (url === "/v2/") {
      response.end("{}");
    } else if (this.behaviour === "talks") {
      response.writeHead(404).end("no ".repeat(1 << 20));
    } else if (url.includes("/manifests/") && this.behaviour !== "unknown image") {
      response.setHeader("Content-Type", "application/vnd.docker.distribution.manifest.v2+json");
      response.setHeader("Docker-Content-Digest", digest(this.#manifest));
      response.setHeader("Content-Length", this.#manifest.length);
      response.end(this.#manifest);
    } else if (url.includes("/blobs/")) {
      void this.#sendBlob(url.slice(url.lastIndexOf("/") + 1), response);
    } else {
      response.writeHead(404, { "Content-Type": "application/json" });
      response.end('{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}');
    }
  }

  async #sendBlob(name: string, response: ServerResponse): Promise<void> {
    const blob = this.#blobs.get(name) ?? Buffer.alloc(0);
    response.setHeader("Content-Length", blob.length);
    if (name !== this.#layer) {
      response.end(blob);
      return;
    }
    this.layerRequests++;
    let sent = 0;
    response.on("close", () => {
      if (sent < blob.length) this.brokenOff++;
    });
    if (this.behaviour === "serves") {
      sent = blob.length;
      response.end(blob);
      return;
    }
    const part = Math.ceil(blob.length / 20);
    for (let at = 0; at < blob.length && !response.destroyed; at += part) {
      if (this.behaviour === "stalls" && at >= blob.length / 2) return;
      response.write(blob.subarray(at, at + part));
      sent = at + part;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    response.end();
  }

  #add(blob: Buffer): string {
    this.#blobs.set(digest(blob), blob);
    return digest(blob);
  }
}

/** A tar with one file that is not compressible and that no other image has. */
function layer(): Buffer {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-layer-"));
  try {
    writeFileSync(path.join(dir, "file"), randomBytes(4 << 20));
    return execFileSync("tar", ["-C", dir, "-c", "file"], { maxBuffer: 8 << 20 });
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function digest(content: Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}
