import { isMember } from "../imports.ts";
import type { Token } from "../lexer.ts";
import type { Finding, Rule } from "../rule.ts";

const timers = "return a deadline as data; the service keeps the timer (TimerPort of @baton/ports)";
const clock = "take nowMs (monotonic) or wallMs as an argument";
const random = "take a Prng of @baton/kit as an argument";
const waiting = "return what is to be done as data; the service awaits it";

/** Global name → what to write instead. */
const bannedNames = new Map(
  Object.entries({
    await: waiting,
    async: waiting,
    setTimeout: timers,
    setInterval: timers,
    setImmediate: timers,
    queueMicrotask: timers,
    clearTimeout: timers,
    clearInterval: timers,
    Date: clock,
    performance: clock,
    crypto: random,
    process: "take the value as an argument; the service reads the environment",
    console: "put the fact into the result; the service logs it",
    Buffer: "use Uint8Array, DataView, TextEncoder and TextDecoder",
    fetch: "return the request as data; a layer 4 package performs it",
    globalThis: "take what is needed as an argument",
  }),
);

const bannedPackages = new Map(
  Object.entries({
    pino: "put the fact into the result; the service logs it",
    "prom-client": "put the number into the result; the service counts it",
    fastify: "move the input and output to a layer 4 package",
    undici: "move the input and output to a layer 4 package",
    nats: "move the input and output to a layer 4 package",
    zeromq: "move the input and output to a layer 4 package",
  }),
);

/** A pure package applies events and decides; time, chance and the world come in as arguments. */
export const purity: Rule = {
  name: "purity",
  *check(workspace) {
    for (const { path, role, code, imports, package: owner } of workspace.sources) {
      if (!owner.isPure || role !== "src") {
        continue;
      }
      for (const { specifier, line } of imports) {
        const replacement = specifier.startsWith("node:")
          ? "move the input and output to a layer 4 package"
          : bannedPackages.get(specifier);
        if (replacement !== undefined) {
          yield { path, line, message: `pure package imports ${specifier}; ${replacement}` };
        }
      }
      yield* bannedUses(path, code);
    }
  },
};

function* bannedUses(path: string, code: readonly Token[]): Generator<Finding> {
  for (const [at, { kind, text, line }] of code.entries()) {
    if (kind !== "word" || isMember(code, at)) {
      continue;
    }
    if (text === "Math" && code[at + 2]?.text === "random") {
      yield { path, line, message: `pure package uses Math.random; ${random}` };
    }
    const replacement = bannedNames.get(text);
    if (replacement !== undefined && !isDeclaration(code, at)) {
      yield { path, line, message: `pure package uses ${text}; ${replacement}` };
    }
  }
}

/** A property, parameter or method that is merely called so: `process:`, `fetch?:`, `fetch(a): b`. */
function isDeclaration(code: readonly Token[], at: number): boolean {
  const next = code[at + 1]?.text;
  const before = code[at - 1]?.text;
  if (next === ":" || (next === "?" && code[at + 2]?.text === ":")) {
    return before !== "?" && before !== "case";
  }
  return (
    next === "(" && ["{", ";", "}", "readonly"].includes(before ?? "") && isSignature(code, at)
  );
}

/** Whether the parentheses that open after the name close before `:` or `{`, as no call does. */
function isSignature(code: readonly Token[], at: number): boolean {
  let depth = 0;
  for (let index = at + 1; index < code.length; index += 1) {
    const text = code[index]?.text;
    depth += text === "(" ? 1 : text === ")" ? -1 : 0;
    if (depth === 0) {
      return [":", "{"].includes(code[index + 1]?.text ?? "");
    }
  }
  return false;
}
