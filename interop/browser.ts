import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { PersonBrowser } from "../test/support/person-browser.ts";
import { CALLS, type Result } from "./cells.ts";
import type { InteropClient } from "./client.ts";
import { buildWeb, webVersion } from "./libraries.ts";
import { needsImage } from "./run.ts";

/** Serves the page that makes the calls; `origin` is what the service must allow. */
export class InteropPage implements AsyncDisposable {
  readonly #server: http.Server;
  #bundle = "";

  private constructor(server: http.Server) {
    this.#server = server;
  }

  static async start(): Promise<InteropPage> {
    const server = http.createServer((request, response) => {
      const script = request.url === "/bundle.js";
      response.setHeader("content-type", script ? "text/javascript" : "text/html; charset=utf-8");
      response.end(
        script ? page.#bundle : "<!doctype html><title>interop</title><script src=/bundle.js></script>",
      );
    });
    const page = new InteropPage(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return page;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** A client that is this page in a browser. */
  client(name: string, protocol: "connect" | "grpc-web"): InteropClient {
    return {
      name,
      prepare: async (options) => {
        await needsImage("desktop", options);
        const cwd = await buildWeb(options);
        this.#bundle = readFileSync(path.join(cwd, "bundle.js"), "utf8");
        const browser = await PersonBrowser.start();
        await browser.page.goto(this.origin);
        return {
          version: `${await browser.page.browser().version()}, ${webVersion(cwd, "@connectrpc/connect-web")}`,
          call: ({ cell, argument }, { address, sandboxId }) => {
            const args = JSON.stringify([protocol, address, sandboxId, CALLS[cell], argument]).slice(1, -1);
            return browser.page.evaluate(`interopCall(${args})`) as Promise<Result>;
          },
          dispose: () => browser[Symbol.asyncDispose](),
        };
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}
