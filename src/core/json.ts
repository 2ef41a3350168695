/** A value that JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** An object that JSON can hold. */
export interface JsonObject {
  readonly [key: string]: Json;
}
