import { existsSync } from "node:fs";
import path from "node:path";
import type { Finding } from "../../base/diagnosis.ts";
import { ProjectQuota } from "./project-quota.ts";
import { Tools } from "./tool.ts";

/** Looks whether the file system of a root, which may not be there yet, would hold a quota. Changes nothing. */
export async function diagnoseQuota(
  option: string,
  quotaBytes: number | undefined,
  root: string,
): Promise<Finding[]> {
  if (quotaBytes === undefined) return [];
  const subject = `--${option}`;
  let directory = root;
  while (!existsSync(directory)) directory = path.dirname(directory);
  const problem = await ProjectQuota.problemOf(directory, Tools.find());
  if (problem === undefined) return [{ subject, status: "ok", found: "the file system can enforce it" }];
  return [
    {
      subject,
      status: "limited",
      found: `it would be watched, not enforced: ${problem}`,
      mend: `Have ${root} on ext4 or xfs mounted with prjquota, run the service as root, and install chattr and setquota (ext4) or xfs_quota (xfs).`,
    },
  ];
}
