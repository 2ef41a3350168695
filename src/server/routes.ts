import type { DescMessage, DescMethod, DescService } from "@bufbuild/protobuf";
import {
  type ConnectRouter,
  createConnectRouter,
  createMethodImplSpec,
  createServiceImplSpec,
  type MethodImpl,
  type MethodImplSpec,
  type ServiceImpl,
} from "@connectrpc/connect";
import {
  createMethodSerializationLookup,
  type MethodSerializationLookup,
  type UniversalHandler,
  type UniversalHandlerOptions,
} from "@connectrpc/connect/protocol";
import { compressionGzip } from "@connectrpc/connect-node";
import { type Admit, changesSomething } from "./admission.ts";
import { withSubjects } from "./audit-log.ts";
import { callOf } from "./call.ts";
import { amendLibraryErrors, withErrorBoundary } from "./error-boundary.ts";
import type { ErrorConverter } from "./error-conversion.ts";
import { type RpcLimits, readMaxBytesOf } from "./limits.ts";

/** Writes fields with default values: clients should see an exit code of 0 instead of inferring it. */
const JSON_OPTIONS = { alwaysEmitImplicit: true };

/** Registers the handlers of services. */
export type Routes = (router: ConnectRouter) => void;

/** A method of the server. */
export interface Route {
  /** `package.Service/Method`. */
  readonly name: string;
  readonly method: DescMethod;
  readonly readMaxBytes: number;
  /** Whether it may change something. */
  readonly changes: boolean;
  /** The implementation. Its errors are not converted. */
  readonly spec: MethodImplSpec;
  /** How its messages are serialized as JSON. */
  readonly json: MethodSerializationLookup<DescMessage, DescMessage>;
  /** Serves the method in every protocol. Throws only converted errors. */
  readonly handler: UniversalHandler;
}

interface RouteOptions {
  readonly limits: RpcLimits;
  readonly errors: ErrorConverter;
  readonly admit: Admit;
  /** Whether calls collect the ids of what they act on. Default: false. */
  readonly isAudited?: boolean;
}

/** The methods of the server, by path. */
export class RouteTable implements ConnectRouter {
  readonly #byPath = new Map<string, Route>();
  readonly #options: RouteOptions;
  readonly #library: ConnectRouter;

  constructor(options: RouteOptions) {
    this.#options = options;
    this.#library = createConnectRouter({
      acceptCompression: [compressionGzip],
      // Between local programs, compression costs far more time than it saves.
      compressMinBytes: 1 << 20,
      jsonOptions: JSON_OPTIONS,
    });
  }

  /** Part of {@link ConnectRouter}. */
  get handlers(): UniversalHandler[] {
    return this.#library.handlers;
  }

  /** The services with at least one method here. */
  get services(): DescService[] {
    return [...new Set(Array.from(this.#byPath.values(), (route) => route.method.parent))];
  }

  /** The method for a request path. */
  find(path: string): Route | undefined {
    return this.#byPath.get(path);
  }

  service<T extends DescService>(
    service: T,
    implementation: Partial<ServiceImpl<T>>,
    options?: Partial<UniversalHandlerOptions>,
  ): this {
    const { methods } = createServiceImplSpec(service, implementation);
    for (const spec of Object.values(methods)) this.#add(spec, options);
    return this;
  }

  rpc<M extends DescMethod>(
    method: M,
    implementation: MethodImpl<M>,
    options?: Partial<UniversalHandlerOptions>,
  ): this {
    this.#add(createMethodImplSpec(method, implementation), options);
    return this;
  }

  #add(registered: MethodImplSpec, options: Partial<UniversalHandlerOptions> = {}): void {
    const { limits, errors, admit, isAudited = false } = this.#options;
    const spec = isAudited ? withSubjects(registered) : registered;
    const { method } = spec;
    const name = `${method.parent.typeName}/${method.name}`;
    const readMaxBytes = readMaxBytesOf(limits, name);
    const guarded = withErrorBoundary(spec, errors, readMaxBytes);
    this.#library.rpc(method, guarded.impl as MethodImpl<DescMethod>, {
      ...options,
      readMaxBytes,
      requestGate: (context) => {
        amendLibraryErrors(context, errors, readMaxBytes);
        // The library does not know what the call handles itself: the deadline, and whether it was a GET.
        const { timeoutMs, requestMethod } = callOf(context);
        Object.assign(context, { timeoutMs, requestMethod });
        return admit(context);
      },
    });
    const handler = this.#library.handlers.at(-1);
    if (!handler) throw new Error(`no handler was made for ${name}`);
    const jsonOptions = { ...JSON_OPTIONS, ...options.jsonOptions };
    const sizes = { readMaxBytes, writeMaxBytes: Number.MAX_SAFE_INTEGER };
    const json = createMethodSerializationLookup(method, undefined, jsonOptions, sizes);
    const changes = changesSomething(method);
    this.#byPath.set(handler.requestPath, { name, method, readMaxBytes, changes, spec, json, handler });
  }
}
