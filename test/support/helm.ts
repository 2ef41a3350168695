import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { adminKubeconfig } from "./kubernetes.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** deploy/helm/berth */
export const CHART = `${ROOT}deploy/helm/berth`;

/** Runs Helm. Returns its stdout. */
export async function helm(...args: readonly string[]): Promise<string> {
  const { stdout: program } = await promisify(execFile)(`${ROOT}scripts/helm.sh`);
  const env = { ...process.env, KUBECONFIG: adminKubeconfig() };
  return (await promisify(execFile)(program.trim(), args, { env })).stdout;
}

/** Values for the chart, as arguments. */
export function set(values: Readonly<Record<string, string>>): string[] {
  return Object.entries(values).flatMap(([key, value]) => ["--set", `${key}=${value}`]);
}
