import { parentPort, workerData } from "node:worker_threads";
import type { ParsedAside, TextAside } from "./parse-aside.ts";
import { parseSecretsFile } from "./secrets-file.ts";
import { parseTokenFile, TokenFileError } from "./token-file.ts";

// The worker thread of parse-aside.ts. It parses one text and ends.
const { kind, text, name } = workerData as TextAside;
parentPort?.postMessage(parsed());

function parsed(): ParsedAside {
  try {
    return { content: kind === "tokens" ? parseTokenFile(text, name) : parseSecretsFile(text, name) };
  } catch (error) {
    if (error instanceof TokenFileError) return { problem: error.message };
    throw error;
  }
}
