import type { ConfigOrigin } from "./config-problem.ts";
import type { ConfigPath } from "./config-tree.ts";

/** Raw values before validation. */
export type RawObject = Record<string, unknown>;

interface Place {
  /** Of the key, or of the list item; unknown and missing keys are reported there. */
  readonly key: ConfigOrigin;
  /** Of the value; wrong values are reported there. */
  readonly value: ConfigOrigin;
}

/**
 * Raw values of all sources, laid over one another, with the place that each came from. A source
 * replaces lists and maps as a whole, sections key by key.
 */
export class ConfigValues {
  readonly root: RawObject = {};
  readonly #places = new Map<string, Place>();
  readonly #top: ConfigOrigin;

  /** `top`: where a missing key of the root is reported. */
  constructor(top: ConfigOrigin) {
    this.#top = top;
  }

  /** Records where a value of the file stands; the value itself is put in with `set`. */
  place(path: ConfigPath, place: Place): void {
    this.#places.set(placeKey(path), place);
  }

  /** Puts `value` at `path`, from `origin`; all that was below is forgotten. Creates sections. */
  set(path: readonly string[], value: unknown, origin: ConfigOrigin): void {
    let section = this.root;
    for (const key of path.slice(0, -1)) {
      const next = section[key];
      section = isRawObject(next) ? next : define(section, key, {});
    }
    define(section, path.at(-1)!, value);
    const below = placeKey(path).slice(0, -1);
    for (const key of this.#places.keys()) {
      if (key.startsWith(`${below},`)) this.#places.delete(key);
    }
    this.#mark(path, value, origin);
  }

  get(path: ConfigPath): unknown {
    let value: unknown = this.root;
    for (const step of path) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, step))
        return undefined;
      value = (value as Record<string | number, unknown>)[step];
    }
    return value;
  }

  /** Where the value at exactly this path was given; the schema's default when nowhere. */
  originOf(path: ConfigPath): ConfigOrigin {
    return this.#places.get(placeKey(path))?.value ?? { kind: "default" };
  }

  /** Nearest known place: of the value, else of the key of the section or list around it. */
  nearest(path: ConfigPath, part: "key" | "value"): ConfigOrigin {
    const exact = this.#places.get(placeKey(path));
    if (exact !== undefined) return exact[part];
    if (path.length === 0) return this.#top;
    return this.nearest(path.slice(0, -1), "key");
  }

  #mark(path: ConfigPath, value: unknown, origin: ConfigOrigin): void {
    this.place(path, { key: origin, value: origin });
    if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) this.#mark([...path, index], item, origin);
    } else if (isRawObject(value)) {
      for (const [key, item] of Object.entries(value)) this.#mark([...path, key], item, origin);
    }
  }
}

export function isRawObject(value: unknown): value is RawObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Own property whatever its name: a key `__proto__` stays a key, and is refused as unknown. */
export function define<V>(object: RawObject, key: string, value: V): V {
  Object.defineProperty(object, key, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
  return value;
}

function placeKey(path: ConfigPath): string {
  return JSON.stringify(path);
}
