import { isPinned } from "./compose-lint.ts";

interface Instruction {
  readonly name: string;
  readonly text: string;
}

/** Instructions with their continuation lines joined, comments left out. */
export function readDockerfile(text: string): Instruction[] {
  return text
    .replace(/^\s*#.*\n?/gm, "")
    .replace(/\\\n\s*/g, " ")
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const [, name = "", rest = ""] = /^\s*(\w+)\s*(.*)$/.exec(line) ?? [];
      return { name: name.toUpperCase(), text: rest.trim() };
    });
}

/** Paths that a Dockerfile copies out of the build context. */
export function contextPaths(text: string): string[] {
  return readDockerfile(text)
    .filter(({ name, text: copied }) => name === "COPY" && !copied.startsWith("--from"))
    .flatMap(({ text: copied }) => copied.split(/\s+/).slice(0, -1));
}

/** What a reader of the Dockerfile would object to; empty when nothing. */
export function lintDockerfile(text: string): string[] {
  const instructions = readDockerfile(text);
  return [
    ...baseProblems(instructions),
    ...finalStageProblems(instructions),
    ...secretProblems(instructions),
    ...cacheProblems(instructions),
  ];
}

function* baseProblems(instructions: readonly Instruction[]): Generator<string> {
  const stages = new Set<string>();
  for (const { name, text } of instructions) {
    if (name === "FROM") {
      const [image = "", , stage] = text.split(/\s+/);
      if (!stages.has(image) && !isPinned(image)) {
        yield `FROM ${image} is not pinned to a version`;
      }
      stages.add(stage ?? "");
    }
    if (name === "ADD") {
      yield "ADD fetches and unpacks; use COPY";
    }
  }
}

function* finalStageProblems(instructions: readonly Instruction[]): Generator<string> {
  const final = instructions.slice(instructions.findLastIndex(({ name }) => name === "FROM"));
  const last = (wanted: string) => final.findLast(({ name }) => name === wanted)?.text;
  if (!/^[1-9]\d*(:[1-9]\d*)?$/.test(last("USER") ?? "")) {
    yield "the last USER is not a number other than 0";
  }
  if (last("HEALTHCHECK") === undefined) {
    yield "no HEALTHCHECK";
  }
  for (const name of ["ENTRYPOINT", "CMD"]) {
    if (!last(name)?.startsWith("[")) {
      yield `${name} is not in exec form: signals would end at a shell`;
    }
  }
}

function* secretProblems(instructions: readonly Instruction[]): Generator<string> {
  for (const { name, text } of instructions) {
    if ((name === "ENV" || name === "ARG") && /PASSWORD|TOKEN|SECRET|API_?KEY/i.test(text)) {
      yield `${name} ${text.split(/[=\s]/)[0]} stays in the image; mount a secret`;
    }
  }
}

/** Dependencies are fetched from the lock file alone, before any source is copied. */
function* cacheProblems(instructions: readonly Instruction[]): Generator<string> {
  const fetchAt = instructions.findIndex(
    ({ name, text }) => name === "RUN" && text.startsWith("pnpm fetch"),
  );
  if (fetchAt === -1) {
    yield "no RUN pnpm fetch: every change of a source would fetch the dependencies again";
  }
  for (const [at, { name, text }] of instructions.entries()) {
    if (name !== "COPY" || text.startsWith("--from")) {
      continue;
    }
    const copied = text.split(/\s+/).slice(0, -1);
    if (copied.includes(".")) {
      yield "COPY . takes whatever lies around; name what is needed";
    }
    const isLock = copied.every((path) => /^pnpm-(lock|workspace)\.yaml$/.test(path));
    if (at < fetchAt && !isLock) {
      yield `COPY ${copied.join(" ")} before pnpm fetch: its change would fetch the dependencies again`;
    }
  }
  const installs = instructions.filter(({ text }) => text.startsWith("pnpm install"));
  if (!installs.some(({ text }) => /--frozen-lockfile/.test(text) && /--prod/.test(text))) {
    yield "no RUN pnpm install --frozen-lockfile --prod";
  }
}
