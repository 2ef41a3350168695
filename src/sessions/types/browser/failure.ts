import type { JsonObject } from "../../../base/json.ts";

/** A tool's own failure: it ends in a result with `TOOL_CODE.failed`. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
  readonly data: JsonObject;

  /** @param message what happened and what to do, for a person or a model. @param data more of the result. */
  constructor(message: string, data: JsonObject = {}) {
    super(message);
    this.data = data;
  }
}
