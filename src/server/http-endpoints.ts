import type { Registry } from "prom-client";
import type { HealthSource } from "./health.ts";
import { endResponse, type HttpRequest, type HttpResponse, requestEnd } from "./http-message.ts";

/** A plain answer. */
export interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Answers to `GET`, by path. */
export type Pages = Readonly<Record<string, () => Page | Promise<Page>>>;

/**
 * The pages of the server: `/healthz` (200 while the process lives), `/readyz`
 * (200, or 503 with the reason) and `/metrics` (Prometheus).
 */
export function createPages(health: HealthSource, metrics: Registry): Pages {
  return {
    "/healthz": () => textPage(200, "ok"),
    "/readyz": () => (health.isServing() ? textPage(200, "ok") : textPage(503, health.reason())),
    "/metrics": async () => ({ status: 200, type: metrics.contentType, body: await metrics.metrics() }),
  };
}

/** Makes a one-line answer of plain text. */
export function textPage(status: number, text: string): Page {
  return { status, type: "text/plain; charset=utf-8", body: `${text}\n` };
}

/** Sends an answer that is no RPC's. */
export async function sendPage(request: HttpRequest, response: HttpResponse, page: Page): Promise<void> {
  await requestEnd(request);
  if (request.aborted) return;
  response.statusCode = page.status;
  response.setHeader("content-type", page.type);
  response.setHeader("content-length", Buffer.byteLength(page.body));
  response.setHeader("x-content-type-options", "nosniff");
  endResponse(response, request.method === "HEAD" ? undefined : page.body);
}

/** What a client sent, fit to be quoted back to it. */
export function printable(text: string): string {
  return text.slice(0, 200).replace(/[^\x20-\x7e]/g, "?");
}
