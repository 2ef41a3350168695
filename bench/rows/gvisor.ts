import { create } from "@bufbuild/protobuf";
import { SandboxService, SandboxSpecSchema } from "../../gen/ts/berth/v1/sandbox_pb.js";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";
import { inTurn, quantile } from "../stats.ts";

const MB = 1_000_000;

/**
 * Sandboxes under gVisor, alternating with sandboxes under Docker's own runtime. Not part of a run: `--rows gvisor`,
 * after `scripts/gvisor.sh`.
 */
export const gvisor: Row = {
  name: "gvisor",
  limitSeconds: 240,
  run: async ({ start, scale }) => {
    const service = await start(["--allow-runtime", "runsc=user-kernel"]);
    const make = async (runtime: string): Promise<string> => {
      const spec = create(SandboxSpecSchema, { runtime });
      const { sandbox } = await service.client.unary(SandboxService.method.createSandbox, { spec });
      return sandbox?.sandboxId ?? "";
    };
    const made: string[] = [];
    const creates = await inTurn(
      Math.max(8, 30 * scale),
      async () => made.push(await make("runsc")),
      async () => made.push(await make("")),
    );
    for (const id of made) await service.remove(id);
    const [own, shared] = [await make("runsc"), await make("")];
    for (let i = 0; i < 100; i++) await both(service, own, shared, ["true"]);
    const execs = await inTurn(
      Math.max(50, 300 * scale),
      () => service.exec(own, ["true"]),
      () => service.exec(shared, ["true"]),
    );
    const bytes = Math.round(100 * MB * Math.max(scale, 0.3));
    const zeros = ["head", "-c", String(bytes), "/dev/zero"];
    await both(service, own, shared, zeros);
    const output = await inTurn(
      5,
      () => service.exec(own, zeros),
      () => service.exec(shared, zeros),
    );
    const speed = (values: readonly number[]): number => bytes / MB / (quantile(values, 0.5) / 1000);
    const [p50, rawP50] = [speed(output.berth), speed(output.raw)];
    return [
      latency("create, gVisor against runc", creates),
      latency("exec of true, gVisor against runc", execs),
      {
        name: "output, gVisor against runc",
        unit: "MB/s",
        p50,
        rawP50,
        ratio: p50 / rawP50,
        goal: "for comparison",
      },
    ];
  },
};

async function both(service: BenchService, own: string, shared: string, args: readonly string[]) {
  await service.exec(own, args);
  await service.exec(shared, args);
}

function latency(
  name: string,
  { berth, raw }: { readonly berth: readonly number[]; readonly raw: readonly number[] },
): Figure {
  const [p50, rawP50] = [quantile(berth, 0.5), quantile(raw, 0.5)];
  return {
    name,
    unit: "ms",
    p50,
    p99: quantile(berth, 0.99),
    rawP50,
    ratio: rawP50 / p50,
    goal: "for comparison",
  };
}
