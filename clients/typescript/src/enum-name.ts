/** Names of a generated enum's values. A value that this client does not know, from a newer service, is "UNKNOWN_" and its number. */
export type EnumName<E> = (keyof E & string) | `UNKNOWN_${number}`;

/** The name of a value of a generated enum. */
export function nameOf<E extends Readonly<Record<string, string | number>>>(
  names: E,
  value: number,
): EnumName<E> {
  const name = (names as Readonly<Record<number, string | number>>)[value];
  return name === undefined ? `UNKNOWN_${value}` : (name as keyof E & string);
}
