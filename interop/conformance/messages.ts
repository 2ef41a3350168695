import { readFileSync } from "node:fs";
import { createFileRegistry, type DescMessage, type DescService, fromBinary } from "@bufbuild/protobuf";
import { type Any, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import type { Code } from "@connectrpc/connect";

/** A header or trailer. */
export interface Header {
  readonly name: string;
  readonly value: readonly string[];
}

/** An error that a handler is asked to end in. */
interface WantedError {
  readonly code: Code;
  readonly message?: string;
  readonly details: readonly Any[];
}

/** What every definition of an answer has. */
export interface Definition {
  readonly responseHeaders: readonly Header[];
  readonly responseTrailers: readonly Header[];
  readonly responseDelayMs: number;
}

/** How to answer with one message. */
export interface UnaryDefinition extends Definition {
  readonly response:
    | { readonly case: "responseData"; readonly value: Uint8Array }
    | { readonly case: "error"; readonly value: WantedError }
    | { readonly case: undefined };
}

/** How to answer with a stream. */
export interface StreamDefinition extends Definition {
  readonly responseData: readonly Uint8Array[];
  readonly error?: WantedError;
}

/** What the runner asks of a server. */
export interface ServerCompatRequest {
  readonly useTls: boolean;
  readonly messageReceiveLimit: number;
  readonly serverCreds?: { readonly cert: Uint8Array; readonly key: Uint8Array };
}

const { CONFORMANCE_DESCRIPTORS: file = "" } = process.env;

/** The messages of the conformance suite, which comes with them. `npm run conformance` names their file. */
export const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(file)));

const PACKAGE = "connectrpc.conformance.v1";

export function messageType(name: string): DescMessage {
  const found = registry.getMessage(`${PACKAGE}.${name}`);
  if (!found) throw new Error(`${file} has no ${name}`);
  return found;
}

export function conformanceService(): DescService {
  const found = registry.getService(`${PACKAGE}.ConformanceService`);
  if (!found) throw new Error(`${file} has no ConformanceService`);
  return found;
}
