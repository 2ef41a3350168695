import { beforeAll } from "vitest";
import { type TestApp, useApp } from "../../../support/app.ts";
import type { Request } from "../../../support/client.ts";
import { processesOf } from "../../../support/docker.ts";
import type { ExecutionResult } from "../../../support/execution.ts";

/** A service with one sandbox, for all tests of a file. */
export interface ExecBench {
  readonly app: TestApp;
  readonly id: string;
  exec(command: string | readonly string[], more?: Request): Promise<ExecutionResult>;
  /** The sandbox's processes whose command line contains the marker. */
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
