#!/usr/bin/env node
// Shows how a change affects the service's CPU time: runs the services of this checkout and of another one, alternating
// in one run, so that other load on the machine affects both.
//
//   node bench/compare.ts --base DIRECTORY [--rounds 40] [--calls 40] [--image NAME]
import { parseArgs } from "node:util";
import { SandboxService } from "../gen/ts/berth/v1/sandbox_pb.js";
import { processorMsPerCall } from "./processor-time.ts";
import { BenchService } from "./service.ts";
import { quantile } from "./stats.ts";

const { values } = parseArgs({
  options: {
    base: { type: "string" },
    rounds: { type: "string", default: "40" },
    calls: { type: "string", default: "40" },
    image: { type: "string", default: "berth/base:latest" },
  },
});
if (values.base === undefined) throw new Error("give the other checkout by --base");

/** Rounds that are not counted. */
const WARM_UP = 10;
const CHECKOUTS = { base: values.base, here: `${import.meta.dirname}/..` } as const;
type Checkout = keyof typeof CHECKOUTS;
/** What is measured, and with how many concurrent calls. */
const WORK = [
  { name: "Exec of true, one by one", atOnce: 1, call: execute },
  { name: "Exec of true, 16 at once", atOnce: 16, call: execute },
  { name: "unary call, one by one", atOnce: 1, call: unary },
  { name: "unary call, 16 at once", atOnce: 16, call: unary },
];

const services: { readonly checkout: Checkout; readonly service: BenchService; readonly sandbox: string }[] =
  [];
try {
  for (const checkout of ["base", "here"] as const) {
    const service = await BenchService.start(values.image, [], { checkout: CHECKOUTS[checkout] });
    services.push({ checkout, service, sandbox: await service.create() });
  }
  const taken = WORK.map(() => ({ base: [] as number[], here: [] as number[] }));
  for (let round = -WARM_UP; round < Number(values.rounds); round++) {
    for (const [at, { atOnce, call }] of WORK.entries()) {
      // The order alternates.
      for (const { checkout, service, sandbox } of round % 2 === 0 ? services : services.toReversed()) {
        const ms = await processorMsPerCall(service.pid, Number(values.calls), atOnce, () =>
          call(service, sandbox),
        );
        if (round >= 0) taken[at]?.[checkout].push(ms);
      }
    }
  }
  for (const [at, { name }] of WORK.entries()) {
    const { base = [], here = [] } = taken[at] ?? {};
    const ratios = here.map((ms, round) => ms / (base[round] ?? Number.NaN));
    console.log(
      `${name.padEnd(26)} ${quantile(base, 0.5).toFixed(3)} ms → ${quantile(here, 0.5).toFixed(3)} ms, ` +
        `× ${quantile(ratios, 0.5).toFixed(3)} (median of ${ratios.length} pairs; middle half ${quantile(ratios, 0.25).toFixed(2)} to ${quantile(ratios, 0.75).toFixed(2)})`,
    );
  }
} finally {
  for (const { service } of services) await service.stop();
}

function execute(service: BenchService, sandbox: string): Promise<unknown> {
  return service.exec(sandbox, ["true"]);
}

function unary(service: BenchService): Promise<unknown> {
  return service.client.unary(SandboxService.method.getStats, {});
}
