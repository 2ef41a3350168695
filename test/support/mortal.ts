/** Wraps an object of a service, so that every use of it after the service's end fails. */
export function mortal<T extends object>(target: T, alive: { readonly yes: boolean }): T {
  return new Proxy(target, {
    get(object, name) {
      const value: unknown = Reflect.get(object, name);
      if (typeof value === "object" && value !== null) return mortal(value, alive);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if (!alive.yes) throw new Error("the service was killed");
        return value.apply(object, args);
      };
    },
  });
}
