import { parse } from "yaml";

export interface ComposeService {
  readonly image?: string;
  readonly build?: { readonly context: string; readonly dockerfile: string };
  readonly user?: string;
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly ports?: readonly string[];
  readonly expose?: readonly string[];
  readonly volumes?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
}

export type Compose = Readonly<Record<string, ComposeService>>;

export function readCompose(text: string): Compose {
  return parse(text, { merge: true }).services;
}

/** What a reader of the compose file would object to; empty when nothing. */
export function lintCompose(text: string): string[] {
  const services = readCompose(text);
  const problems = Object.entries(services).flatMap(([name, service]) =>
    [
      ...imageProblems(service),
      ...safetyProblems(service),
      ...orderProblems(services, service),
    ].map((problem) => `${name}: ${problem}`),
  );
  for (const [index, line] of text.split("\n").entries()) {
    if (/^\s+(ports|expose):/.test(line) && !/\]\s+# \S/.test(line)) {
      problems.push(`line ${index + 1}: say after # what the ports are for`);
    }
  }
  return problems;
}

function* imageProblems({ image }: ComposeService): Generator<string> {
  if (image === undefined) {
    yield "no image; a build needs one too, for its name";
  } else if (!isPinned(image)) {
    yield `image ${image} is not pinned to a version`;
  }
}

/** A tag with a digit in it, or a digest. */
export function isPinned(image: string): boolean {
  return /@sha256:[0-9a-f]{64}$|:[^/]*\d[^/]*$/.test(image);
}

function* safetyProblems(service: ComposeService): Generator<string> {
  const { user = "", environment = {}, ports = [], cap_drop = [], security_opt = [] } = service;
  if (!/^[1-9]\d*(:[1-9]\d*)?$/.test(user)) {
    yield "runs as root; set user to a number";
  }
  if (service.read_only !== true) {
    yield "can write its own file system; set read_only";
  }
  if (!cap_drop.includes("ALL") || !security_opt.includes("no-new-privileges:true")) {
    yield "keeps privileges; set cap_drop: [ALL] and no-new-privileges";
  }
  for (const [key, value] of Object.entries(environment)) {
    if (/PASSWORD|TOKEN|SECRET|KEY/.test(key) && !key.endsWith("_FILE") && value !== "") {
      yield `${key} holds a secret; use ${key}_FILE`;
    }
  }
  for (const port of ports) {
    if (!port.startsWith("127.0.0.1:")) {
      yield `port ${port} is open to the network; publish it on 127.0.0.1`;
    }
  }
}

function* orderProblems(services: Compose, service: ComposeService): Generator<string> {
  if (service.healthcheck?.test === undefined) {
    yield "no healthcheck";
  }
  for (const [name, { condition }] of Object.entries(service.depends_on ?? {})) {
    if (!(name in services)) {
      yield `depends on ${name}, which is no service`;
    } else if (condition !== "service_healthy") {
      yield `starts before ${name} answers; use condition: service_healthy`;
    }
  }
}

/** Services so that each comes after those it depends on. Throws on a cycle. */
export function startOrder(services: Compose): string[] {
  const order: string[] = [];
  const open = new Set<string>();
  const visit = (name: string) => {
    if (order.includes(name)) {
      return;
    }
    if (open.has(name)) {
      throw new Error(`depends_on runs in a circle at ${name}`);
    }
    open.add(name);
    for (const other of Object.keys(services[name]?.depends_on ?? {})) {
      visit(other);
    }
    order.push(name);
  };
  for (const name of Object.keys(services)) {
    visit(name);
  }
  return order;
}
