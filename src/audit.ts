import type { Finding } from "./base/diagnosis.ts";
import { BerthError } from "./base/errors.ts";
import type { Logger } from "./base/logger.ts";
import { checkPrivateFile, RotatedFile } from "./base/rotated-file.ts";
import type { AppSettings } from "./config/settings.ts";
import { auditGapLine } from "./server/audit-log.ts";

const OPTION = "audit-log";
/** About ten thousand lines. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

type AuditSettings = Pick<AppSettings, "auditLog" | "auditFileBytes" | "auditFiles">;

/** Opens the file of the audit log. Undefined: none is configured. @throws `INVALID_ARGUMENT` if it cannot be used. */
export async function openAuditFile(
  { auditLog, auditFileBytes, auditFiles }: AuditSettings,
  logger: Logger,
): Promise<RotatedFile | undefined> {
  if (auditLog === undefined) return undefined;
  return RotatedFile.open(auditLog, {
    option: OPTION,
    maxBytes: auditFileBytes,
    maxFiles: auditFiles,
    maxWaitingBytes: MAX_WAITING_BYTES,
    gapLine: auditGapLine,
    onProblem: (problem) => {
      if (problem === undefined) logger.info({}, "the audit log can be written again");
      else
        logger.error(
          { err: problem },
          "the audit log cannot be written; its lines wait, and are lost beyond a limit",
        );
    },
  });
}

/** A warning for the operator about the audit log, in one sentence. Undefined: there is no problem. */
export function auditWarning({ lost, isFailing }: RotatedFile): string | undefined {
  if (lost === 0) return isFailing ? "The audit log cannot be written; the log says why." : undefined;
  return `The audit log has lost ${lost} lines since the start, because it could not be written; the log says why.`;
}

/** Whether the audit log could be written. Changes nothing. */
export async function diagnoseAudit({ auditLog }: AuditSettings): Promise<Finding[]> {
  if (auditLog === undefined) return [];
  try {
    await checkPrivateFile(auditLog, OPTION);
    return [{ subject: OPTION, status: "ok", found: `${auditLog} is closed to other users` }];
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const { fix = `Name another file with --${OPTION}` } = error.metadata;
    return [{ subject: OPTION, status: "missing", found: error.message, fix }];
  }
}
