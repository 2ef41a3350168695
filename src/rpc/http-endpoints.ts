import { endResponse, type HttpRequest, type HttpResponse } from "./http-message.ts";

/** A plain answer. */
export interface Page {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Answers to `GET`, by path. */
export type Pages = Readonly<Record<string, () => Page | Promise<Page>>>;

/** Makes a one-line answer of plain text. */
export function textPage(status: number, text: string): Page {
  return { status, type: "text/plain; charset=utf-8", body: `${text}\n` };
}

/** Sends an answer that is no RPC's. */
export function sendPage(request: HttpRequest, response: HttpResponse, page: Page): void {
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
