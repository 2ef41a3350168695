import {
  create,
  createRegistry,
  type DescFile,
  type DescService,
  fromBinary,
  type MessageInitShape,
  type Registry,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import {
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
  ServerReflection as V1,
} from "../../gen/ts/grpc/reflection/v1/reflection_pb.js";
import {
  ServerReflectionRequestSchema as AlphaRequestSchema,
  ServerReflectionResponseSchema as AlphaResponseSchema,
  ServerReflection as V1Alpha,
} from "../../gen/ts/grpc/reflection/v1alpha/reflection_pb.js";

/** A response repeats the request, and names are far shorter. */
const MAX_QUESTION_BYTES = 4096;

type Answer = MessageInitShape<typeof ServerReflectionResponseSchema>["messageResponse"];

/** Answers which services the server has and how they are defined, for grpcurl, `buf curl` and similar programs. */
export class Reflection {
  readonly #serviceNames: readonly string[];
  readonly #files = new Map<string, DescFile>();
  readonly #types: Registry;

  /**
   * @param services to describe, besides reflection itself
   * @param files with further types that clients may see, such as the messages of error details
   */
  constructor(services: readonly DescService[], files: readonly DescFile[]) {
    const all = [...services, V1, V1Alpha];
    this.#serviceNames = all.map((service) => service.typeName).sort();
    for (const service of all) this.#addFile(service.file);
    for (const file of files) this.#addFile(file);
    this.#types = createRegistry(...this.#files.values());
  }

  /** Registers both versions of the protocol. */
  register(router: ConnectRouter): void {
    const answer = (question: Uint8Array) => this.answer(question);
    router.rpc(V1.method.serverReflectionInfo, async function* (requests) {
      for await (const request of requests) yield answer(toBinary(ServerReflectionRequestSchema, request));
    });
    // v1alpha has the same bytes as v1, under another name.
    router.rpc(V1Alpha.method.serverReflectionInfo, async function* (requests) {
      for await (const request of requests) {
        const bytes = toBinary(ServerReflectionResponseSchema, answer(toBinary(AlphaRequestSchema, request)));
        yield fromBinary(AlphaResponseSchema, bytes);
      }
    });
  }

  /** Answers one `ServerReflectionRequest`. An unknown name is reported in the answer, not as an error of the call. */
  answer(question: Uint8Array): ServerReflectionResponse {
    if (question.length > MAX_QUESTION_BYTES) {
      const problem = `the question has ${question.length} bytes, and may have ${MAX_QUESTION_BYTES}`;
      return create(ServerReflectionResponseSchema, {
        messageResponse: failure(Code.InvalidArgument, problem),
      });
    }
    const request = fromBinary(ServerReflectionRequestSchema, question);
    return create(ServerReflectionResponseSchema, {
      validHost: request.host,
      originalRequest: request,
      messageResponse: this.#find(request.messageRequest),
    });
  }

  #find(question: ServerReflectionRequest["messageRequest"]): Answer {
    switch (question.case) {
      case "listServices":
        return {
          case: "listServicesResponse",
          value: { service: this.#serviceNames.map((name) => ({ name })) },
        };
      case "fileByFilename":
        return describe(this.#files.get(question.value), question.value);
      case "fileContainingSymbol":
        return describe(this.#fileOf(question.value), question.value);
      case "fileContainingExtension": {
        const { containingType, extensionNumber } = question.value;
        const message = this.#types.getMessage(containingType);
        const extension = message && this.#types.getExtensionFor(message, extensionNumber);
        return describe(extension?.file, `extension ${extensionNumber} of ${containingType}`);
      }
      case "allExtensionNumbersOfType": {
        const message = this.#types.getMessage(question.value);
        if (!message) return notFound(question.value);
        const extensions = Array.from(this.#types).filter((type) => type.kind === "extension");
        const extensionNumber = extensions
          .filter(({ extendee }) => extendee.typeName === message.typeName)
          .map(({ number }) => number);
        return {
          case: "allExtensionNumbersResponse",
          value: { baseTypeName: message.typeName, extensionNumber },
        };
      }
      case undefined:
        return failure(Code.InvalidArgument, "the request holds no question");
    }
  }

  /** The file that declares a type or service, or a method, field or enum value of one. */
  #fileOf(symbol: string): DescFile | undefined {
    const parent = symbol.slice(0, Math.max(0, symbol.lastIndexOf(".")));
    return (this.#types.get(symbol) ?? this.#types.get(parent))?.file;
  }

  #addFile(file: DescFile): void {
    if (this.#files.has(file.proto.name)) return;
    for (const dependency of file.dependencies) this.#addFile(dependency);
    this.#files.set(file.proto.name, file);
  }
}

function describe(file: DescFile | undefined, what: string): Answer {
  if (!file) return notFound(what);
  const files = new Set<DescFile>();
  const collect = (one: DescFile) => {
    files.add(one);
    one.dependencies.forEach(collect);
  };
  collect(file);
  const fileDescriptorProto = Array.from(files, ({ proto }) => toBinary(FileDescriptorProtoSchema, proto));
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

function notFound(what: string): Answer {
  return failure(Code.NotFound, `not found: ${what}`);
}

function failure(errorCode: Code, errorMessage: string): Answer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
