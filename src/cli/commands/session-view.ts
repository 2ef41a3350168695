import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Command } from "commander";
import type { ServiceClient } from "../client.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, Interrupted, UsageError } from "../exit.ts";
import { type WorkerFlags, workerCommand, workerOf } from "../flags.ts";
import { type CommandHost, withClient } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";
import { bridgeView, type ViewRequest } from "../view/bridge.ts";
import { visible } from "../visible.ts";

interface ViewFlags extends WorkerFlags {
  readonly port?: string;
  readonly readOnly?: boolean;
  readonly open?: boolean;
}

/** `berth session view`: shows a desktop in this machine's browser. */
export function viewCommand(host: CommandHost): Command {
  return workerCommand("view")
    .summary("show a session in your browser")
    .description(
      "Shows a session in your browser, with pointer and keyboard, until Ctrl-C. Prints the page's URL, which works only on " +
        "this machine; anyone who knows it can use the session. A session does not expire while it is shown.",
    )
    .option("--read-only", "show it, but send no pointer or keyboard input")
    .option("--port <port>", "port of the page (default: any free one)")
    .option("--open", "open the page in the browser")
    .argument("[worker]", "whose session, in place of -w")
    .argument("[type]", "the type of the session", "vm")
    .addHelpText(
      "after",
      examples("berth session view --open", "berth session view --read-only --port 8080 ann vm"),
    )
    .action(
      host.action(async (worker: string | undefined, resourceType: string, flags: ViewFlags) => {
        const { io, interrupts } = host;
        const request = {
          workerId: worker ?? workerOf(flags, io.env),
          resourceType,
          readOnly: flags.readOnly === true,
        };
        const port = portOf(flags);
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { signal } = interrupts;
          await tryView(client, request, signal);
          const { ViewServer } = await import("../view/server.ts");
          const server = await ViewServer.start({
            about: { title: `${request.workerId} · ${resourceType}`, readOnly: request.readOnly },
            port,
            onSocket: (socket) => void bridgeView(client, request, socket, signal),
          });
          try {
            if (flags.json) await writeJson(io.stdout, { url: server.url });
            else await write(io.stdout, `${server.url}\n`);
            await write(
              io.stderr,
              `Showing ${visible(request.workerId)}'s ${resourceType}. Ctrl-C ends it.\n`,
            );
            if (flags.open) openBrowser(io, server.ownUrl);
            if (!signal.aborted) await once(signal, "abort");
            if (signal.reason instanceof Interrupted) return EXIT.ok;
            throw signal.reason;
          } finally {
            server.close();
          }
        });
      }),
    );
}

function portOf({ port = "0" }: ViewFlags): number {
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) {
    throw new UsageError(`--port: ${JSON.stringify(port)} is not between 1 and 65535`);
  }
  return Number(port);
}

/** Opens a view and closes it, so that errors appear here instead of in the page. */
async function tryView(client: ServiceClient, request: ViewRequest, signal: AbortSignal): Promise<void> {
  const leave = new AbortController();
  const ends = AbortSignal.any([signal, leave.signal]);
  try {
    for await (const { event } of client.sessions.viewSession(
      { ...request, readOnly: true },
      { signal: ends },
    )) {
      if (event.case === "started") return;
    }
    throw new Failed("the view ended at once");
  } finally {
    leave.abort();
  }
}

function openBrowser(io: Io, url: string): void {
  const child = spawn("xdg-open", [url], { stdio: "ignore", detached: true });
  child.on("error", () => io.stderr.write("berth: this machine has no xdg-open: open the page yourself\n"));
  child.unref();
}
