import { readdirSync, readFileSync } from "node:fs";

const NS_PER_MS = 1e6;

/** CPU time that a process's threads have used so far, user and kernel, in milliseconds. */
export function processorMs(pid: number): number {
  const threads = `/proc/${pid}/task`;
  const ns = readdirSync(threads).map((id) =>
    Number(readFileSync(`${threads}/${id}/schedstat`, "utf8").split(" ")[0]),
  );
  return ns.reduce((sum, one) => sum + one, 0) / NS_PER_MS;
}

/** CPU time that a process uses per call, for a number of calls with some of them concurrent. */
export async function processorMsPerCall(
  pid: number,
  calls: number,
  atOnce: number,
  call: () => Promise<unknown>,
): Promise<number> {
  const before = processorMs(pid);
  let left = calls;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (left-- > 0) await call();
    }),
  );
  return (processorMs(pid) - before) / calls;
}
