import { fail, type Outcome, ok } from "@baton/kit";

/**
 * Shapes of message fields. `read` gives the value or where and why it is wrong; `write` gives what
 * msgpack encodes. Unknown keys of a struct are ignored on reading, so that a newer minor version
 * may add fields. Absent (`optional`), unknown (`nullable`) and zero survive as three things.
 */
export interface Shape<T> {
  read(input: unknown, path: string): Outcome<T, string>;
  write(value: T): unknown;
}

export type Infer<S> = S extends Shape<infer T> ? T : never;

function primitive<T>(what: string, check: (input: unknown) => input is T): Shape<T> {
  return {
    read: (input, path) => (check(input) ? ok(input) : fail(`${path}: not ${what}`)),
    write: (value) => value,
  };
}

export const text = primitive("a text", (input) => typeof input === "string");
export const bool = primitive("true or false", (input) => typeof input === "boolean");
export const bytes = primitive("bytes", (input) => input instanceof Uint8Array);
export const real = primitive(
  "a finite number",
  (input): input is number => typeof input === "number" && Number.isFinite(input),
);
export const uint = primitive(
  "a whole number from 0 to 2^53-1",
  (input): input is number => Number.isSafeInteger(input) && (input as number) >= 0,
);

export function oneOf<const V extends string>(...values: readonly V[]): Shape<V> {
  return primitive(`one of ${values.join(", ")}`, (input): input is V =>
    values.includes(input as V),
  );
}

/** Null stands for unknown. */
export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return {
    read: (input, path) => (input === null ? ok(null) : shape.read(input, path)),
    write: (value) => (value === null ? null : shape.write(value)),
  };
}

const optionalMark = Symbol("optional");

/** The key may be missing: absent. */
export interface OptionalShape<T> extends Shape<T | undefined> {
  readonly [optionalMark]: true;
}

export function optional<T>(shape: Shape<T>): OptionalShape<T> {
  return {
    [optionalMark]: true,
    read: (input, path) => (input === undefined ? ok(undefined) : shape.read(input, path)),
    write: (value) => (value === undefined ? undefined : shape.write(value)),
  };
}

/** `countMax` is checked before any element is read. */
export function list<T>(shape: Shape<T>, countMax: number): Shape<readonly T[]> {
  return {
    read(input, path) {
      if (!Array.isArray(input)) return fail(`${path}: not a list`);
      if (input.length > countMax)
        return fail(`${path}: ${input.length} items, at most ${countMax}`);
      const values: T[] = [];
      for (let at = 0; at < input.length; at++) {
        const item = shape.read(input[at], `${path}[${at}]`);
        if (!item.ok) return item;
        values.push(item.value);
      }
      return ok(values);
    },
    write: (values) => values.map((value) => shape.write(value)),
  };
}

type Fields = Record<string, Shape<unknown>>;
type OptionalKeys<F> = { [K in keyof F]: F[K] extends OptionalShape<unknown> ? K : never }[keyof F];
type StructOf<F extends Fields> = {
  readonly [K in Exclude<keyof F, OptionalKeys<F>>]: Infer<F[K]>;
} & { readonly [K in OptionalKeys<F>]?: Exclude<Infer<F[K]>, undefined> };

export function struct<F extends Fields>(fields: F): Shape<StructOf<F>> {
  const entries = Object.entries(fields);
  return {
    read(input, path) {
      if (!isRecord(input)) return fail(`${path}: not a map`);
      const value: Record<string, unknown> = {};
      for (const [key, shape] of entries) {
        const field = shape.read(input[key], path === "" ? key : `${path}.${key}`);
        if (!field.ok) return field;
        if (field.value !== undefined) value[key] = field.value;
      }
      return ok(value as StructOf<F>);
    },
    write(value) {
      const output: Record<string, unknown> = {};
      for (const [key, shape] of entries) {
        const field = shape.write((value as Record<string, unknown>)[key]);
        if (field !== undefined) output[key] = field;
      }
      return output;
    },
  };
}

/** A struct that says which of several it is by its `kind`. */
export function union<V extends { readonly kind: string }>(
  variants: {
    readonly [K in V["kind"]]: Shape<Omit<Extract<V, { kind: K }>, "kind">>;
  },
): Shape<V> {
  return {
    read(input, path) {
      if (!isRecord(input)) return fail(`${path}: not a map`);
      const kind = input["kind"];
      const shape =
        typeof kind === "string" && Object.hasOwn(variants, kind)
          ? (variants as Record<string, Shape<object>>)[kind]
          : undefined;
      if (shape === undefined) return fail(`${path}.kind: unknown kind ${JSON.stringify(kind)}`);
      const rest = shape.read(input, path);
      return rest.ok ? ok({ kind, ...rest.value } as unknown as V) : rest;
    },
    write(value) {
      const shape = (variants as unknown as Record<string, Shape<object>>)[value.kind]!;
      return { kind: value.kind, ...(shape.write(value) as object) };
    },
  };
}

function isRecord(input: unknown): input is Record<string, unknown> {
  return (
    typeof input === "object" &&
    input !== null &&
    !Array.isArray(input) &&
    !(input instanceof Uint8Array)
  );
}
