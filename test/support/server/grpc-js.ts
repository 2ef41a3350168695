import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import * as grpc from "@grpc/grpc-js";
import { ErrorDetailSchema } from "../../../gen/ts/berth/v1/error_pb.js";

type Method<I extends DescMessage, O extends DescMessage> = DescMethod & {
  readonly input: I;
  readonly output: O;
};

/** A gRPC client with another library than the server's, for any method. */
export class GrpcJs implements Disposable {
  readonly client: grpc.Client;

  constructor(
    target: string,
    credentials = grpc.credentials.createInsecure(),
    options: grpc.ClientOptions = {},
  ) {
    // Otherwise clients of the same target share connections, also between tests.
    this.client = new grpc.Client(target, credentials, { "grpc.use_local_subchannel_pool": 1, ...options });
  }

  unary<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    request: MessageInitShape<I>,
    { header = {}, ...options }: grpc.CallOptions & { header?: Record<string, string> } = {},
  ): Promise<{ message: MessageShape<O>; metadata: grpc.Metadata; trailer: grpc.Metadata }> {
    return new Promise((resolve, reject) => {
      const result: Partial<{ metadata: grpc.Metadata; trailer: grpc.Metadata }> = {};
      let message: MessageShape<O> | undefined;
      const call = this.client.makeUnaryRequest(
        pathOf(method),
        encode(method.input),
        decode(method.output),
        create(method.input, request),
        metadataOf(header),
        options,
        (error, value) => {
          if (error) reject(error);
          message = value;
        },
      );
      call.on("metadata", (metadata) => (result.metadata = metadata));
      call.on("status", (status) => {
        const { metadata = new grpc.Metadata() } = result;
        // The status may arrive before the callback.
        setImmediate(() => message && resolve({ message, metadata, trailer: status.metadata }));
      });
    });
  }

  serverStream<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    request: MessageInitShape<I>,
    options: grpc.CallOptions = {},
  ): grpc.ClientReadableStream<MessageShape<O>> {
    return this.client.makeServerStreamRequest(
      pathOf(method),
      encode(method.input),
      decode(method.output),
      create(method.input, request),
      options,
    );
  }

  clientStream<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    done: grpc.requestCallback<MessageShape<O>>,
  ): grpc.ClientWritableStream<MessageShape<I>> {
    return this.client.makeClientStreamRequest(
      pathOf(method),
      encode(method.input),
      decode(method.output),
      done,
    );
  }

  bidi<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
  ): grpc.ClientDuplexStream<MessageShape<I>, MessageShape<O>> {
    return this.client.makeBidiStreamRequest(pathOf(method), encode(method.input), decode(method.output));
  }

  [Symbol.dispose](): void {
    this.client.close();
  }
}

/** The path of a method: `/package.Service/Method`. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** The error of a refused call. Fails if the call succeeds. */
export async function grpcFailure(call: Promise<unknown>) {
  const error = await call.then(
    () => Promise.reject(new Error("the call did not fail")),
    (reason: grpc.ServiceError) => reason,
  );
  return { code: grpc.status[error.code], message: error.details, detail: detailOf(error.metadata) };
}

/** The `ErrorDetail` of a status. */
export function detailOf(metadata: grpc.Metadata | undefined) {
  const [bytes] = metadata?.get("grpc-status-details-bin") ?? [];
  if (!Buffer.isBuffer(bytes)) return undefined;
  const error = findTrailerError(new Headers({ "grpc-status-details-bin": bytes.toString("base64") }));
  return error?.findDetails(ErrorDetailSchema)[0];
}

function metadataOf(header: Record<string, string>): grpc.Metadata {
  const metadata = new grpc.Metadata();
  for (const [name, value] of Object.entries(header)) metadata.set(name, value);
  return metadata;
}

function encode<Desc extends DescMessage>(schema: Desc) {
  return (message: MessageShape<Desc>) => Buffer.from(toBinary(schema, message));
}

function decode<Desc extends DescMessage>(schema: Desc) {
  return (bytes: Buffer) => fromBinary(schema, bytes);
}
