import { z } from "zod";
import { BerthError, invalidArgument } from "../base/errors.ts";
import type { JsonObject } from "../base/json.ts";
import type { SessionType, Tool } from "./backend.ts";

/** A tool and its session type. */
export interface CatalogTool {
  readonly type: SessionType;
  readonly tool: Tool;
  /** For example `bash:run`. */
  readonly fullName: string;
  /** JSON Schema of its params. */
  readonly paramsSchema: () => JsonObject;
}

/** A session type as clients see it. */
interface CatalogType {
  readonly type: SessionType;
  /** JSON Schema of its config. */
  readonly configSchema: () => JsonObject;
}

/** The session types and their tools. */
export class ToolCatalog {
  /** Ordered by the bytes of their names. */
  readonly types: readonly CatalogType[];
  /** Ordered by the bytes of their full names. */
  readonly tools: readonly CatalogTool[];
  readonly #types: ReadonlyMap<string, CatalogType>;
  readonly #byFullName: ReadonlyMap<string, CatalogTool>;
  readonly #byShortName: ReadonlyMap<string, readonly CatalogTool[]>;

  constructor(types: readonly SessionType[]) {
    this.types = types
      .map((type) => ({ type, configSchema: lazySchema(type.config) }))
      .sort((a, b) => (a.type.name < b.type.name ? -1 : 1));
    this.tools = types
      .flatMap((type) =>
        type.tools.map((tool) => ({
          type,
          tool,
          fullName: `${type.name}:${tool.name}`,
          paramsSchema: lazySchema(tool.params),
        })),
      )
      .sort((a, b) => (a.fullName < b.fullName ? -1 : 1));
    this.#types = new Map(this.types.map((entry) => [entry.type.name, entry]));
    this.#byFullName = new Map(this.tools.map((entry) => [entry.fullName, entry]));
    this.#byShortName = Map.groupBy(this.tools, ({ tool }) => tool.name);
  }

  /** The type with this name. @throws `INVALID_ARGUMENT` if there is none. */
  type(field: string, name: string): SessionType {
    const found = this.#types.get(name);
    if (found !== undefined) return found.type;
    const known = [...this.#types.keys()].join(", ");
    throw invalidArgument(field, `there is no resource type ${JSON.stringify(name)}. There are: ${known}.`);
  }

  /**
   * The tool with this name: `bash:run`, `bash.run`, or `run` if only one type has a tool of that name.
   * @throws `TOOL_NOT_FOUND`; `INVALID_ARGUMENT` if several types have one.
   */
  find(name: string): CatalogTool {
    if (name === "") throw invalidArgument("tool", "is required");
    const found = this.#byFullName.get(name.replace(/^([^.:]+)\./, "$1:"));
    if (found !== undefined) return found;
    const named = this.#byShortName.get(name) ?? [];
    const [only, another] = named;
    if (only !== undefined && another === undefined) return only;
    if (only !== undefined) {
      const candidates = named.map(({ fullName }) => fullName).join(", ");
      throw new BerthError(
        "INVALID_ARGUMENT",
        `tool: ${JSON.stringify(name)} may be ${candidates}. Give the full name.`,
        { metadata: { field: "tool", candidates } },
      );
    }
    throw new BerthError(
      "TOOL_NOT_FOUND",
      `There is no tool ${JSON.stringify(name)}. ${this.#advice(name)}`,
      {
        metadata: { tool: name },
      },
    );
  }

  #advice(name: string): string {
    const type = this.#types.get(name.split(/[.:]/, 1)[0] ?? "")?.type;
    const names = type
      ? type.tools.map((tool) => `${type.name}:${tool.name}`)
      : this.types.map((entry) => `${entry.type.name}:…`);
    return `There are: ${names.join(", ")}.`;
  }
}

/** Built on first use: building all schemas takes a twentieth of the service's start. */
function lazySchema(schema: z.ZodType): () => JsonObject {
  let made: JsonObject | undefined;
  return () => {
    // The schema of what clients send: fields with a default are optional.
    made ??= z.toJSONSchema(schema, { io: "input" }) as JsonObject;
    return made;
  };
}
