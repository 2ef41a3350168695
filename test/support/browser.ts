import { expect } from "vitest";
import type { ToolAnswer, Worker } from "./worker.ts";

/** The data of browser tools. Each tool returns some of the fields. */
export interface BrowserData {
  readonly url: string;
  readonly title: string;
  readonly status: number | null;
  readonly tree: string;
  readonly text: string;
  readonly html: string;
  readonly length: number;
  readonly truncated: boolean;
  readonly result: unknown;
  readonly error: { readonly name: string; readonly value: string } | null;
  readonly width: number;
  readonly height: number;
  readonly path: string;
  readonly size: number;
  readonly tabs: readonly { readonly id: string; readonly active: boolean }[];
  readonly dialogs: readonly Record<string, unknown>[];
  readonly opened_tabs: readonly string[];
  readonly tab_restarted: boolean;
  readonly session_restarted: boolean;
}

type Params = Readonly<Record<string, unknown>>;

/** The browser of a worker, with its tools by name. */
export class BrowserClient {
  readonly worker: Worker;

  constructor(worker: Worker) {
    this.worker = worker;
  }

  call(tool: string, params: Params = {}): Promise<ToolAnswer<BrowserData>> {
    // Against hangs only: on a busy machine a call may take longer than the tools' default.
    return this.worker.execute<BrowserData>(`browser:${tool}`, { timeout: 150, ...params });
  }

  /** Calls a tool that must succeed. */
  async ok(tool: string, params: Params = {}): Promise<BrowserData> {
    const { code, message, data } = await this.call(tool, params);
    expect({ tool, code, message }).toEqual({ tool, code: 0, message: "success" });
    return data;
  }

  /** Opens a page with this HTML. */
  show(html: string): Promise<BrowserData> {
    return this.ok("goto", { url: `data:text/html;charset=utf-8,${encodeURIComponent(html)}` });
  }

  async evaluate(script: string): Promise<unknown> {
    return (await this.ok("evaluate", { script })).result;
  }

  /** The reference in the tree to the element with this role and name. */
  async refOf(role: string, name?: string): Promise<string> {
    const { tree } = await this.ok("tree");
    return refIn(tree, role, name);
  }
}

/** The reference in a given tree to the element with this role and name. */
export function refIn(tree: string, role: string, name?: string): string {
  const start = `- ${role}${name === undefined ? " " : ` ${JSON.stringify(name)} `}`;
  const line = tree.split("\n").find((text) => text.trimStart().startsWith(start));
  const ref = line === undefined ? undefined : /\[ref=(e\d+)\]/.exec(line)?.[1];
  if (ref === undefined) throw new Error(`no ${start}in the tree:\n${tree}`);
  return ref;
}
