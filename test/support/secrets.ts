import { renameSync, writeFileSync } from "node:fs";

/** Writes a secrets file, atomically if it exists. Returns its path. */
export function writeSecrets(file: string, secrets: Readonly<Record<string, string>>): string {
  writeFileSync(`${file}.new`, JSON.stringify({ secrets }), { mode: 0o600 });
  renameSync(`${file}.new`, file);
  return file;
}
