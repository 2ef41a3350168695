import type { Registry } from "prom-client";
import type { HealthSource } from "./health.ts";
import { endResponse, type HttpRequest, type HttpResponse, requestEnd } from "./http-message.ts";

/** A plain answer. */
export interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
  /** In lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What a path answers to `GET`. */
interface PageSource {
  /** Who may read it: everybody, or admins alone. */
  readonly access: "open" | "admin";
  page(): Page | Promise<Page>;
}

/** Answers to `GET`, by path. */
export type Pages = Readonly<Record<string, PageSource>>;

/**
 * The pages of the server: `/healthz` (200 while the process lives), `/readyz`
 * (200, or 503 with the reason) and `/metrics` (Prometheus), which covers all
 * tenants.
 */
export function createPages(health: HealthSource, metrics: Registry): Pages {
  return {
    "/healthz": { access: "open", page: () => textPage(200, "ok") },
    "/readyz": { access: "open", page: () => readiness(health) },
    "/metrics": {
      access: "admin",
      page: async () => ({ status: 200, type: metrics.contentType, body: await metrics.metrics() }),
    },
  };
}

function readiness(health: HealthSource): Page {
  if (!health.isServing()) return textPage(503, health.reason());
  const warning = health.warning();
  return textPage(200, warning === undefined ? "ok" : `ok\n${warning}`);
}

/** Makes a one-line answer of plain text. */
export function textPage(status: number, text: string): Page {
  return { status, type: "text/plain; charset=utf-8", body: `${text}\n` };
}

/** Sends an answer that is not an RPC's. */
export async function sendPage(request: HttpRequest, response: HttpResponse, page: Page): Promise<void> {
  await requestEnd(request);
  if (request.aborted) return;
  response.statusCode = page.status;
  response.setHeader("content-type", page.type);
  response.setHeader("content-length", Buffer.byteLength(page.body));
  response.setHeader("x-content-type-options", "nosniff");
  for (const [name, value] of Object.entries(page.headers ?? {})) response.setHeader(name, value);
  endResponse(response, request.method === "HEAD" ? undefined : page.body);
}

/** What a client sent, fit to be quoted back to it. */
export function printable(text: string): string {
  return text.slice(0, 200).replace(/[^\x20-\x7e]/g, "?");
}
