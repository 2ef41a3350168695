import { beforeAll } from "vitest";
import { type TestApp, useApp } from "../../../support/app.ts";
import type { Request } from "../../../support/client.ts";
import { processesOf } from "../../../support/docker.ts";
import type { ExecutionResult } from "../../../support/execution.ts";

/** A service with one sandbox, for every test of a file. */
export interface ExecBench {
  readonly app: TestApp;
  readonly id: string;
  exec(command: string | readonly string[], more?: Request): Promise<ExecutionResult>;
  /** Processes of the sandbox whose command line holds the marker. */
  running(marker: string): Promise<string[]>;
}

export function useExecBench(): ExecBench {
  const app = useApp();
  let id = "";
  beforeAll(async () => {
    ({ sandbox_id: id } = await app.client.createSandbox());
  });
  return {
    app,
    get id() {
      return id;
    },
    exec: (command, more = {}) => app.client.exec(id, command, more).result,
    running: async (marker) => {
      const all = await processesOf(app.instance, id);
      return all.filter((line) => line.includes(marker));
    },
  };
}
