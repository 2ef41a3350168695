import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { Client, Request } from "./client.ts";
import { ENGINES } from "./engines.ts";
import { eventually } from "./eventually.ts";
import { DESKTOP_IMAGE } from "./images.ts";
import { decodePng, type Picture } from "./png.ts";
import type { TestSettings } from "./settings.ts";
import type { ToolAnswer, Worker } from "./worker.ts";

const script = fileURLToPath(new URL("../../scripts/desktop-rootfs.sh", import.meta.url));

/**
 * The engines with what desktops and browsers need. bubblewrap uses the root file system of the image berth/desktop.
 */
export const DESKTOP_ENGINES: readonly {
  readonly name: "docker" | "bubblewrap";
  readonly settings: TestSettings;
}[] = ENGINES.flatMap(({ name, settings }) => {
  // Desktops have not been tested on Kubernetes.
  if (name === "kubernetes") return [];
  return [{ name, settings: name === "docker" ? settings : { ...settings, rootfs: desktopRootfs() } }];
});
function desktopRootfs(): string {
  return execFileSync(script, ["--yes"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }).trim();
}

/** Creates a sandbox that desktops can share. */
export async function desktopSandbox(client: Client, engine: "docker" | "bubblewrap"): Promise<string> {
  const resources = { memory_bytes: 2 ** 31, pids_limit: 1024, cpu_millis: 2000 };
  const spec: Request = { resources, ...(engine === "docker" && { image: DESKTOP_IMAGE }) };
  return (await client.createSandbox(spec)).sandbox_id;
}

/** A window, as listed by `vm:windows`. */
export interface DesktopWindow {
  readonly id: number;
  readonly title: string;
  readonly class: string;
  readonly pid: number | null;
  readonly bounds: Bounds;
  readonly active: boolean;
  readonly minimized: boolean;
}

/** x, y, width and height in screen pixels. */
export type Bounds = readonly [number, number, number, number];

/** A node of the accessibility tree. */
export interface TreeNode {
  readonly role: string;
  readonly name: string;
  readonly bounds: Bounds;
  readonly value?: string | number;
  readonly description?: string;
  readonly states?: readonly string[];
  readonly children?: readonly TreeNode[];
}

/** The data of `vm:screenshot`. */
export interface ScreenshotData {
  readonly width: number;
  readonly height: number;
  readonly cursor: { readonly x: number; readonly y: number };
  readonly accessibility_tree: TreeNode;
  readonly tree_truncated: boolean;
  readonly session_restarted: boolean;
}

/** How long a program may take to start on a loaded machine. */
const PATIENCE = { timeoutMs: 60_000 };

/** The desktop of a worker. */
export class TestDesktop {
  readonly worker: Worker;

  constructor(worker: Worker) {
    this.worker = worker;
  }

  /** Starts it. */
  async start(config: Readonly<Record<string, unknown>> = {}, more: Request = {}): Promise<void> {
    const { status, failure } = await this.worker.create("vm", config, more);
    expect({ status, failure }).toEqual({ status: "SESSION_RESULT_STATUS_CREATED", failure: null });
  }

  /** Runs a tool that must succeed, and returns its data. */
  async do<Data = Record<string, unknown>>(
    tool: string,
    params: Readonly<Record<string, unknown>> = {},
  ): Promise<Data> {
    const { code, message, data } = await this.ask<Data>(tool, params);
    expect({ code, message }).toEqual({ code: 0, message: "success" });
    return data;
  }

  ask<Data = Record<string, unknown>>(
    tool: string,
    params: Readonly<Record<string, unknown>> = {},
  ): Promise<ToolAnswer<Data>> {
    return this.worker.execute<Data>(`vm:${tool}`, params);
  }

  async windows(): Promise<readonly DesktopWindow[]> {
    return (await this.do<{ readonly windows: readonly DesktopWindow[] }>("windows")).windows;
  }

  /** The window that matches, as soon as there is one. */
  window(fits: (window: DesktopWindow) => boolean): Promise<DesktopWindow> {
    let seen: readonly DesktopWindow[] = [];
    return eventually(
      async () => {
        seen = await this.windows();
        return seen.find(fits);
      },
      { ...PATIENCE, describe: () => seen },
    );
  }

  /** Starts a program. Returns its window when it is active and no longer moves. */
  async open(
    command: string | readonly string[],
    fits: (window: DesktopWindow) => boolean,
  ): Promise<DesktopWindow> {
    await this.do("launch", { command });
    return this.window((window) => fits(window) && window.active);
  }

  async screenshot(): Promise<{ readonly data: ScreenshotData; readonly picture: Picture }> {
    const { code, data, attachments } = await this.ask<ScreenshotData>("screenshot");
    expect(code).toBe(0);
    const [png] = attachments;
    if (png === undefined) throw new Error("there is no picture");
    expect(png).toMatchObject({ name: "screenshot", media_type: "image/png" });
    return { data, picture: decodePng(png.content) };
  }

  /** The clipboard's text, as soon as it matches. */
  copied(fits: (text: string) => boolean): Promise<string> {
    let text = "";
    return eventually(
      async () => {
        text = (await this.do<{ readonly text: string }>("clipboard", { action: "get" })).text;
        return fits(text) ? text : undefined;
      },
      { ...PATIENCE, describe: () => text },
    );
  }

  /** The tree's node that matches, as soon as there is one. */
  node(fits: (node: TreeNode) => boolean): Promise<TreeNode> {
    let tree: TreeNode | undefined;
    return eventually(
      async () => {
        tree = (await this.screenshot()).data.accessibility_tree;
        return find(tree, fits);
      },
      { ...PATIENCE, describe: () => tree },
    );
  }
}

function find(node: TreeNode, fits: (node: TreeNode) => boolean): TreeNode | undefined {
  if (fits(node)) return node;
  for (const child of node.children ?? []) {
    const found = find(child, fits);
    if (found !== undefined) return found;
  }
  return undefined;
}
