import { expect, test } from "vitest";
import { BerthError, type ErrorReason } from "../../../../src/base/errors.ts";
import { SharedResult } from "../../../../src/base/shared-result.ts";
import type { Daemon } from "../../../../src/engine/docker/daemon.ts";
import { ExecState } from "../../../../src/engine/docker/exec.ts";

test.each<ErrorReason>(["ENGINE_UNAVAILABLE", "TOO_MANY_OPERATIONS"])(
  "a poll that fails with %s while a process writes does not end it",
  async (reason) => {
    let polls = 0;
    const call = async () => {
      if (++polls === 1) throw new BerthError(reason, "Not now.");
      return { Running: false, ExitCode: 5 };
    };
    const state = new ExecState({ call } as unknown as Daemon, "exec");
    const writes = new SharedResult<void>(new Promise(() => {}));
    await expect(state.exitCode(writes)).resolves.toBe(5);
  },
);
