import { create, type JsonValue, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { Command } from "commander";
import { OutputStream } from "../../../gen/ts/berth/v1/process_pb.js";
import {
  type ExecuteToolResponse,
  ExecuteToolStreamResponseSchema,
  ListToolsResponseSchema,
  type Tool,
  ToolSchema,
} from "../../../gen/ts/berth/v1/session_pb.js";
import { showAttachments } from "../attachments/draw.ts";
import { saveAttachments } from "../attachments/save.ts";
import { examples } from "../examples.ts";
import { EXIT, Failed, UsageError } from "../exit.ts";
import { durationValue, toolParams, type WorkerFlags, workerCommand, workerOf } from "../flags.ts";
import { messageJson } from "../format.ts";
import { type CommandHost, withClient } from "../host.ts";
import { type Io, write, writeJson } from "../io.ts";
import { type ListKind, listAction, listCommand } from "../list/list.ts";
import { everyPage } from "../list/pages.ts";
import { visible } from "../visible.ts";

interface RunFlags extends WorkerFlags {
  readonly timeout?: string;
  readonly output?: string;
}

/** `berth tool …`: lists and runs the tools of sessions. */
export function toolCommand(host: CommandHost): Command {
  return new Command("tool")
    .summary("list and run the tools of sessions")
    .description("Tools run in a worker's session of their type, or in a temporary one created for the call.")
    .addHelpText("after", examples("berth tool ls", "berth tool run bash:run command='ls -l'"))
    .addCommand(lsCommand(host))
    .addCommand(runCommand(host));
}

const TOOLS: ListKind<typeof ListToolsResponseSchema, typeof ToolSchema> = {
  answer: ListToolsResponseSchema,
  item: ToolSchema,
  itemsOf: ({ tools }) => tools,
  idOf: ({ name }) => name,
  columns: [
    { heading: "TOOL", text: ({ name }) => name },
    { heading: "PARAMS", text: paramsOf },
  ],
};

function lsCommand(host: CommandHost): Command {
  return listCommand("ls")
    .summary("list tools")
    .description("Lists tools; with --json also the schemas of their params.")
    .argument("[type]", "only those of this type")
    .addHelpText("after", examples("berth tool ls", "berth tool ls bash"))
    .action(
      listAction(host, TOOLS, async (client, { args: [resourceType = ""], signal }) => {
        const pages = await everyPage((page) =>
          client.sessions.listTools({ resourceType, ...page }, { signal }),
        );
        return create(ListToolsResponseSchema, { tools: pages.flatMap(({ tools }) => tools) });
      }),
    );
}

function runCommand(host: CommandHost): Command {
  return workerCommand("run")
    .summary("run a tool and print its output or its result")
    .description(
      "Runs a tool. Passes on its program's output as it is written; for a tool without output, prints its result as JSON. The " +
        "exit code is the program's, 1 if the tool failed or its code threw an exception, or 124 if it exceeded its timeout.",
    )
    .usage("[options] TOOL [NAME=TEXT | NAME:=JSON]...")
    .option(
      "--timeout <duration>",
      "how long it may run, such as 30s (default: the tool's, else the sandbox's)",
    )
    .option(
      "-o, --output <path>",
      "write the binary result, such as a screenshot, to a file or directory; - is stdout",
    )
    .argument("<tool>", "its name, for instance bash:run")
    .argument("[param...]", "its params: command='ls -l', limit:=10")
    .addHelpText(
      "after",
      examples(
        "berth tool run bash:run command='ls -l'",
        "berth tool run -w ann --timeout 30s python:run code='print(6 * 7)'",
        "berth tool run vm:screenshot -o screen.png",
      ),
    )
    .action(
      host.action(async (tool: string, words: string[], flags: RunFlags) => {
        if (flags.json && flags.output === "-") {
          throw new UsageError("--json and -o - cannot be used together: both write to stdout");
        }
        const request = {
          workerId: workerOf(flags, host.io.env),
          tool,
          params: toolParams(words),
          timeout: durationValue("--timeout", flags.timeout),
        };
        return withClient(host, flags, EXIT.failed, async (client) => {
          const { io, interrupts } = host;
          let wrote = false;
          const { signal } = interrupts;
          for await (const item of client.sessions.executeToolStream(request, { signal })) {
            if (flags.json)
              await writeJson(io.stdout, messageJson(ExecuteToolStreamResponseSchema, item), signal);
            const { event } = item;
            if (event.case === "output") {
              wrote = true;
              const stream = event.value.stream === OutputStream.STDERR ? io.stderr : io.stdout;
              if (!flags.json) await write(stream, event.value.data, signal);
            } else if (event.case === "response") {
              // With `-o -`, stdout contains only the attachment.
              const quiet = flags.json === true || flags.output === "-";
              const exitCode = await tellEnd(io, event.value, { quiet, wrote, signal });
              await takeAttachments(io, event.value, flags, signal);
              return exitCode;
            }
          }
          throw new Failed("the service ended the stream without a response");
        });
      }),
    );
}

/** Prints the result of a tool, and returns the exit code. */
async function tellEnd(
  io: Io,
  { code, message, data }: ExecuteToolResponse,
  {
    quiet,
    wrote,
    signal,
  }: { readonly quiet: boolean; readonly wrote: boolean; readonly signal: AbortSignal },
): Promise<number> {
  const returned = data ? toJson(ValueSchema, data) : null;
  const exitCode = numberIn(returned, "exit_code");
  if (fieldOf(returned, "session_restarted") === true)
    await write(
      io.stderr,
      "berth: the session was lost before this call and has been restarted: what it held is gone\n",
    );
  if (!quiet && !wrote && exitCode === undefined && returned !== null)
    await writeJson(io.stdout, returned, signal);
  const exception = exceptionIn(returned);
  if (!quiet && wrote && exception !== undefined) await write(io.stderr, `${exception}\n`);
  if (code === 0) return exitCode ?? (exception === undefined ? EXIT.ok : EXIT.failed);
  if (!quiet) await write(io.stderr, `berth: ${visible(message)}\n`);
  return code === TIMED_OUT ? EXIT.timedOut : EXIT.failed;
}

async function takeAttachments(
  io: Io,
  { code, attachments }: ExecuteToolResponse,
  flags: RunFlags,
  signal: AbortSignal,
): Promise<void> {
  // If the tool failed, its failure is already printed.
  if (flags.output !== undefined && (attachments.length > 0 || code === 0)) {
    for (const file of await saveAttachments(io, attachments, flags.output, signal))
      await write(io.stderr, `${visible(file)}\n`);
  } else if (!flags.json) await showAttachments(io, attachments, signal);
}

const TIMED_OUT = 5006;

function fieldOf(value: JsonValue, key: string): JsonValue | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return value[key];
}

/** The exception that a tool's code raised, as an interpreter would print it. Undefined: none. */
function exceptionIn(returned: JsonValue): string | undefined {
  const error = fieldOf(returned, "error") ?? null;
  const name = fieldOf(error, "name");
  if (typeof name !== "string") return undefined;
  return String(fieldOf(error, "traceback") || `${name}: ${fieldOf(error, "value")}`).trimEnd();
}

function numberIn(value: JsonValue, key: string): number | undefined {
  const found = fieldOf(value, key);
  return typeof found === "number" && found >= 0 ? found : undefined;
}

/** The names of a tool's params. Optional ones are in brackets. */
function paramsOf({ paramsSchema = {} }: Tool): string {
  const { properties, required } = paramsSchema;
  const names = Object.keys(typeof properties === "object" && properties !== null ? properties : {});
  const needed = new Set(Array.isArray(required) ? required : []);
  return names.map((name) => (needed.has(name) ? name : `[${name}]`)).join(" ");
}
