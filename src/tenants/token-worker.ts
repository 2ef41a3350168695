import { parentPort, workerData } from "node:worker_threads";
import type { ParsedAside, TextAside } from "./parse-aside.ts";
import { parseTokenFile, TokenFileError } from "./token-file.ts";

// The thread of parse-aside.ts: it parses one text and ends.
const { text, name } = workerData as TextAside;
parentPort?.postMessage(parsed());

function parsed(): ParsedAside {
  try {
    return { table: parseTokenFile(text, name) };
  } catch (error) {
    if (error instanceof TokenFileError) return { problem: error.message };
    throw error;
  }
}
