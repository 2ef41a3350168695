import type { Registry } from "prom-client";
import type { HealthSource } from "./health.ts";
import { endAfterRequest, type HttpRequest, type HttpResponse } from "./http-message.ts";

/** An HTTP response that is not an RPC's. */
export interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** The page at a path. */
interface PageSource {
  /** Who may read it: everyone, or only admins. */
  readonly access: "open" | "admin";
  page(): Page | Promise<Page>;
}

/** Pages for `GET`, by path. */
export type Pages = Readonly<Record<string, PageSource>>;

/**
 * The pages of the server: `/healthz` (200 while the process lives), `/readyz` (200, or 503 with the reason) and
 * `/metrics` (Prometheus), which covers all tenants.
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

/** A page with one line of plain text. */
export function textPage(status: number, text: string): Page {
  return { status, type: "text/plain; charset=utf-8", body: `${text}\n` };
}

/** Sends a page. */
export async function sendPage(request: HttpRequest, response: HttpResponse, page: Page): Promise<void> {
  response.statusCode = page.status;
  response.setHeader("content-type", page.type);
  response.setHeader("x-content-type-options", "nosniff");
  for (const [name, value] of Object.entries(page.headers ?? {})) response.setHeader(name, value);
  await endAfterRequest(request, response, page.body);
}

/** Makes text from a client safe to quote back to it. */
export function printable(text: string): string {
  return text.slice(0, 200).replace(/[^\x20-\x7e]/g, "?");
}
