import type { JsonObject } from "../../../base/json.ts";

/** A failure of the tool itself. The result has the code `TOOL_CODE.failed`. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
  readonly data: JsonObject;

  /** @param message what happened and what to do, for people and models. @param data added to the result. */
  constructor(message: string, data: JsonObject = {}) {
    super(message);
    this.data = data;
  }
}
