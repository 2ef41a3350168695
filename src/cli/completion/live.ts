import { FileKind } from "../../../gen/ts/berth/v1/file_pb.js";
import { RunState } from "../../../gen/ts/berth/v1/run_pb.js";
import { type Sandbox, SandboxState } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import type { ServiceClient } from "../client.ts";
import { formatSize, formatWord } from "../format.ts";
import type { Candidate, Typed } from "./complete.ts";

/** How many candidates of a kind are offered. */
const MOST = 200;
/** For how many sandboxes processes are offered. */
const MOST_SANDBOXES = 30;

type Ask = (client: ServiceClient, typed: Typed, signal: AbortSignal) => Promise<Candidate[]>;

/** Lists of the service's things, by the placeholder in a command's usage. */
const KINDS: Readonly<Record<string, Ask>> = {
  sandbox: async (client, _, signal) => (await sandboxesOf(client, signal)).map(ofSandbox),
  process: processesOf,
  workspace: async (client, _, signal) => {
    const { workspaces } = await client.workspaces.listWorkspaces({ pageSize: MOST }, { signal });
    return workspaces.map(({ workspaceId, sizeBytes }) => ({
      value: workspaceId,
      description: sizeBytes === undefined ? "workspace" : `workspace, ${formatSize(Number(sizeBytes))}`,
    }));
  },
  run: async (client, _, signal) => {
    const { runs } = await client.runs.listRuns({ pageSize: MOST }, { signal });
    return runs.map(({ runId, state, name }) => ({
      value: runId,
      description: `${formatWord(RunState[state])} ${name}`,
    }));
  },
  worker: async (client, _, signal) => {
    const { sessions } = await client.sessions.listSessions({ pageSize: MOST }, { signal });
    return [...new Set(sessions.map(({ workerId }) => workerId))].map((value) => ({
      value,
      description: "worker",
    }));
  },
  type: async (client, _, signal) => {
    const { resourceTypes } = await client.sessions.listTools({ pageSize: 1 }, { signal });
    return resourceTypes.map(({ name, description }) => ({ value: name, description }));
  },
  tool: async (client, _, signal) => {
    const { tools } = await client.sessions.listTools({ pageSize: MOST }, { signal });
    return tools.map(({ name, description }) => ({ value: name, description }));
  },
  source: placesOf,
  target: placesOf,
  "process|sandbox": (...given) => together([KINDS.process, KINDS.sandbox], given),
  id: (...given) => together([KINDS.sandbox, KINDS.process, KINDS.run, KINDS.workspace], given),
};

/** Lists a service's things of a kind. Undefined if there is no such kind. */
export async function askService(
  client: ServiceClient,
  kind: string,
  typed: Typed,
  signal: AbortSignal,
): Promise<Candidate[] | undefined> {
  return Object.hasOwn(KINDS, kind) ? KINDS[kind]?.(client, typed, signal) : undefined;
}

async function together(kinds: readonly (Ask | undefined)[], given: Parameters<Ask>): Promise<Candidate[]> {
  return (await Promise.all(kinds.map((ask) => ask?.(...given) ?? []))).flat();
}

async function sandboxesOf(client: ServiceClient, signal: AbortSignal): Promise<Sandbox[]> {
  return (await client.sandboxes.listSandboxes({ pageSize: MOST }, { signal })).sandboxes;
}

function ofSandbox({ sandboxId, state, spec }: Sandbox): Candidate {
  return { value: sandboxId, description: `${formatWord(SandboxState[state])} ${spec?.image ?? ""}` };
}

async function processesOf(
  client: ServiceClient,
  { command }: Typed,
  signal: AbortSignal,
): Promise<Candidate[]> {
  const sandboxes = await sandboxesOf(client, signal);
  // An ended process can be read and waited for, but not killed.
  const query = { pageSize: MOST, showEnded: command !== "kill" };
  const pages = await Promise.all(
    sandboxes
      .slice(0, MOST_SANDBOXES)
      .map(({ sandboxId }) => client.processes.listProcesses({ sandboxId, ...query }, { signal })),
  );
  return pages
    .flatMap(({ processes }) => processes)
    .slice(0, MOST)
    .map(({ processId, exitStatus, command }) => ({
      value: processId,
      description: `${exitStatus ? "ended" : "running"} ${command.case === "argv" ? command.value.args.join(" ") : (command.value ?? "")}`,
    }));
}

/** Ends of a copy: sandboxes, or the content of a directory in the sandbox that has been typed. */
async function placesOf(
  client: ServiceClient,
  { current }: Typed,
  signal: AbortSignal,
): Promise<Candidate[]> {
  const [, sandboxId, path = ""] = /^([^:/]+):(.*)$/s.exec(current) ?? [];
  if (sandboxId === undefined) {
    return (await sandboxesOf(client, signal))
      .map(ofSandbox)
      .map((one) => ({ ...one, value: `${one.value}:` }));
  }
  const above = path.slice(0, path.lastIndexOf("/") + 1);
  const query = { sandboxId, path: above || ".", pageSize: MOST };
  const { entries } = await client.files.listDirectory(query, { signal });
  return entries.map(({ name, file }) => ({
    value: `${sandboxId}:${above}${name}${file?.kind === FileKind.DIRECTORY ? "/" : ""}`,
    description: "",
  }));
}
