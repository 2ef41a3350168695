// A plugin of protoc and buf that writes the API reference (docs/api) from the protos: a page per file, and an index.
import {
  create,
  createFileRegistry,
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescMethod,
  type DescService,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type CodeGeneratorRequest,
  CodeGeneratorResponse_Feature,
  CodeGeneratorResponse_FileSchema,
  CodeGeneratorResponseSchema,
  FileDescriptorSetSchema,
  MethodOptions_IdempotencyLevel,
} from "@bufbuild/protobuf/wkt";
import { getComments, runNodeJs } from "@bufbuild/protoplugin";

/** Only Berth's own protos get pages. */
const OWN = "berth/";
const NOTE = "<!-- Written from proto/ by scripts/generate.sh. Change the comments there. -->";
/** Where the JSON forms of well-known types such as Duration are explained. */
const WELL_KNOWN = "README.md#json";

runNodeJs({
  name: "protoc-gen-reference",
  version: "v1",
  run(request) {
    const files = ownFiles(request);
    const pages = files.map((file) => ({ name: pageOf(file), content: page(file) }));
    return create(CodeGeneratorResponseSchema, {
      supportedFeatures: BigInt(CodeGeneratorResponse_Feature.PROTO3_OPTIONAL),
      file: [{ name: "README.md", content: index(files) }, ...pages].map((file) =>
        create(CodeGeneratorResponse_FileSchema, file),
      ),
    });
  },
});

function ownFiles(request: CodeGeneratorRequest): DescFile[] {
  const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: request.protoFile }));
  return request.fileToGenerate
    .filter((name) => name.startsWith(OWN))
    .sort()
    .flatMap((name) => registry.getFile(name) ?? []);
}

/** The page of `berth/v1/process.proto` is `process.md`. */
function pageOf(file: DescFile): string {
  return `${file.name.split("/").at(-1)}.md`;
}

function index(files: readonly DescFile[]): string {
  const services = files.flatMap((file) => file.services);
  return blocks(
    NOTE,
    "# API reference",
    `Every RPC of the package \`berth.v1\`, with its messages and errors, as the comments of [the protos](../../proto/berth/v1) give them. ${files
      .filter((file) => file.services.length === 0)
      .map((file) => `[${title(file)}](${pageOf(file)}) has what they share.`)
      .join(" ")}`,
    ...services.flatMap((service) => [
      `## [${service.name}](${pageOf(service.file)})`,
      table(
        ["RPC", ""],
        service.methods.map((method) => [
          `[${method.name}](${pageOf(service.file)}#${method.name.toLowerCase()})`,
          firstSentence(commentOf(method)),
        ]),
      ),
    ]),
    "## JSON",
    'Fields are called as in the tables, or in lowerCamelCase: `sandbox_id` and `sandboxId` are the same. An enum\'s value is its name. Bytes are base64; 64-bit numbers are strings; a Duration is a string such as `"1.5s"`, a FieldMask one such as `"labels,idleTimeout"`, always in lowerCamelCase; a Timestamp is RFC 3339, such as `"2026-01-31T12:00:00Z"`; a Struct or a Value is the JSON that it holds. A request may leave out what it does not set. An answer leaves out only messages and optional fields that are not set; other fields have their default, such as `""`, `0` or `[]`.',
  );
}

function page(file: DescFile): string {
  const inline = new Set(
    file.services.flatMap(({ methods }) => methods.flatMap(({ input, output }) => [input, output])),
  );
  const others = allMessages(file.messages).filter((message) => !inline.has(message));
  return blocks(
    NOTE,
    `# ${title(file)}`,
    ...file.services.flatMap(serviceBlocks),
    ...(others.length > 0 ? ["## Messages", ...others.flatMap(messageBlocks)] : []),
    ...(file.enums.length > 0 ? ["## Enums", ...file.enums.flatMap(enumBlocks)] : []),
  );
}

function title(file: DescFile): string {
  const [service] = file.services;
  if (service) return service.name;
  const name = pageOf(file).replace(".md", "s");
  return name.charAt(0).toUpperCase() + name.slice(1);
}

/** All messages, including nested ones. Map entries are not messages of their own. */
function allMessages(messages: readonly DescMessage[]): DescMessage[] {
  return messages.flatMap((message) => [message, ...allMessages(message.nestedMessages)]);
}

function serviceBlocks(service: DescService): string[] {
  const shown = new Map<DescMessage, DescMethod>();
  return [
    prose(commentOf(service)),
    ...service.methods.flatMap((method) => [
      `## ${method.name}`,
      `\`POST /${service.typeName}/${method.name}\`${kind(method)}`,
      prose(commentOf(method)),
      ...[method.input, method.output].flatMap((message) => {
        const first = shown.get(message);
        if (first !== undefined)
          return [`**${message.name}**: as for [${first.name}](#${anchor(first.name)}).`];
        shown.set(message, method);
        return messageBlocks(message);
      }),
    ]),
  ];
}

function kind(method: DescMethod): string {
  const streams = {
    unary: "",
    server_streaming: ", answers with a stream",
    client_streaming: ", takes a stream",
    bidi_streaming: ", takes and answers with a stream",
  }[method.methodKind];
  const reads = method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
  if (!reads) return streams;
  // Streams cannot be called by GET.
  return method.methodKind === "unary" ? "; only reads, and is a GET as well" : `${streams}; only reads`;
}

function messageBlocks(message: DescMessage): string[] {
  return [
    `### ${nameOf(message)}`,
    prose(commentOf(message)),
    ...(message.fields.length === 0
      ? []
      : [
          table(
            ["field", "type", ""],
            message.fields.map((field) => [
              `\`${field.name}\``,
              typeOf(field),
              cell(`${field.oneof ? `One of \`${field.oneof.name}\`. ` : ""}${commentOf(field)}`),
            ]),
          ),
        ]),
    ...message.nestedEnums.flatMap(enumBlocks),
  ];
}

function enumBlocks(desc: DescEnum): string[] {
  return [
    `### ${nameOf(desc)}`,
    prose(commentOf(desc)),
    table(
      ["value", "number", ""],
      desc.values.map((value) => [`\`${value.name}\``, String(value.number), cell(commentOf(value))]),
    ),
  ];
}

function typeOf(field: DescField): string {
  switch (field.fieldKind) {
    case "list":
      return `list of ${elementType(field)}`;
    case "map":
      return `map of ${ScalarType[field.mapKey].toLowerCase()} to ${elementType(field)}`;
    default:
      return elementType(field) + (field.proto.proto3Optional ? ", optional" : "");
  }
}

function elementType(field: DescField): string {
  const desc = field.message ?? field.enum;
  if (desc === undefined) return ScalarType[field.scalar as ScalarType].toLowerCase();
  if (!desc.file.name.startsWith(OWN.replace(/\/$/, ""))) return `[${desc.name}](${WELL_KNOWN})`;
  const target = desc.file === field.parent.file ? "" : pageOf(desc.file);
  return `[${nameOf(desc)}](${target}#${anchor(nameOf(desc))})`;
}

/** Includes the names of the enclosing messages: `FindFilesRequest.Order`. */
function nameOf(desc: DescMessage | DescEnum): string {
  return desc.parent ? `${nameOf(desc.parent)}.${desc.name}` : desc.name;
}

/** The anchor that Markdown renderers give to a heading. */
function anchor(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^a-z0-9 _-]/g, "")
    .replaceAll(" ", "-");
}

function commentOf(desc: Parameters<typeof getComments>[0]): string {
  const { leading = "" } = getComments(desc);
  return leading
    .split("\n")
    .map((line) => line.replace(/^ /, "").trimEnd())
    .join("\n")
    .trim();
}

function prose(text: string): string {
  return text.replaceAll("<", "&lt;");
}

function cell(text: string): string {
  return prose(text).replaceAll("\n\n", "<br>").replaceAll("\n", " ").replaceAll("|", "\\|");
}

function firstSentence(text: string): string {
  const flat = cell(text.split("\n\n", 1)[0] ?? "");
  return /^.*?[.:](?= |$)/.exec(flat)?.[0].replace(/:$/, ".") ?? flat;
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(heads), line(heads.map(() => "---")), ...rows.map(line)].join("\n");
}

function blocks(...texts: readonly string[]): string {
  return `${texts.filter((text) => text !== "").join("\n\n")}\n`;
}
