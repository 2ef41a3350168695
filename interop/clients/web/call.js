// Makes one call of the interop table over a transport of Connect, in Node or in a browser; returns what came of it.
import { ConnectError, createClient } from "@connectrpc/connect";
import { ErrorDetailSchema } from "./gen/berth/v1/error_pb.js";
import { ProcessService } from "./gen/berth/v1/process_pb.js";
import { SandboxService } from "./gen/berth/v1/sandbox_pb.js";

export async function call(transport, sandboxId, cell, argument) {
  const processes = createClient(ProcessService, transport);
  const run = async (shell) => {
    const answer = await processes.runCommand({ sandboxId, command: { case: "shell", value: shell } });
    return { stdout: new TextDecoder().decode(answer.stdout), exitCode: answer.exitStatus?.exitCode };
  };
  const exec = (options) =>
    processes.exec({ sandboxId, command: { case: "shell", value: argument } }, options);
  switch (cell) {
    case "unary":
      return run(argument);
    case "stream":
      return read(exec());
    case "reason": {
      const error = await failureOf(
        createClient(SandboxService, transport).getSandbox({ sandboxId: argument }),
      );
      const [detail] = error.findDetails(ErrorDetailSchema);
      return { code: error.code, reason: detail?.reason, metadata: detail?.metadata };
    }
    case "deadline":
      return { code: (await failureOf(read(exec({ timeoutMs: 2000 })))).code };
    case "cancel": {
      const controller = new AbortController();
      const reading = read(exec({ signal: controller.signal }), () => controller.abort());
      return { code: (await failureOf(reading)).code };
    }
    case "parallel": {
      const answers = await Promise.all(
        Array.from({ length: 100 }, (_, index) => run(`${argument} ${index}`)),
      );
      return { outputs: answers.map(({ stdout }) => stdout) };
    }
    default:
      throw new Error(`unknown cell ${cell}`);
  }
}

async function read(stream, onOutput = () => {}) {
  const chunks = [];
  let exitCode;
  for await (const { event } of stream) {
    if (event.case === "exited") exitCode = event.value.exitCode;
    if (event.case !== "output") continue;
    chunks.push(event.value.data);
    onOutput();
  }
  const all = await new Blob(chunks).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  const sha256 = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { bytes: all.byteLength, sha256, exitCode };
}

async function failureOf(work) {
  try {
    await work;
  } catch (thrown) {
    return ConnectError.from(thrown);
  }
  throw new Error("the call did not fail");
}
