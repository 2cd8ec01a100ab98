import { invariant } from "@baton/kit";
import { checkPattern, checkSubject } from "./subject.ts";

export interface NatsUser {
  /** User name; with an nkey only a comment, since the key is the name. */
  readonly name: string;
  readonly secret:
    | { readonly kind: "password"; readonly password: string }
    /**
     * Read by nats-server from its environment when it starts, as configuration text: all but a
     * plain word stands in double quotes inside the variable.
     */
    | { readonly kind: "environment"; readonly variable: string }
    /** Public key, `U…`. */
    | { readonly kind: "nkey"; readonly publicKey: string };
  /** Subjects it may publish to or request; wildcards allowed. */
  readonly publish: readonly string[];
  /** Subjects it may subscribe to or serve; the inbox is added. */
  readonly subscribe: readonly string[];
  /** `inboxPrefix` of its bus; two services with different prefixes cannot read each other's answers. */
  readonly inboxPrefix: string;
  /** How long it may take to answer a request; null for a user that serves nothing. */
  readonly answerSecondsMax: number | null;
}

/**
 * The `authorization` block of a nats-server configuration. All that is not listed is denied. A
 * user that serves may publish one answer to each request it got (`allow_responses`), and so needs
 * no right on anybody's inbox.
 */
export function renderNatsAuthorization(users: readonly NatsUser[]): string {
  return ["authorization {", "  users = [", ...users.flatMap(renderUser), "  ]", "}", ""].join(
    "\n",
  );
}

function renderUser(user: NatsUser): string[] {
  checkSubject(user.inboxPrefix);
  for (const subject of [...user.publish, ...user.subscribe]) checkPattern(subject);
  const subscribe = [...user.subscribe, `${user.inboxPrefix}.>`];
  const lines = [
    `    # ${user.name.replace(/\s+/g, " ")}`,
    "    {",
    ...renderSecret(user),
    "      permissions {",
    `        publish { allow: ${renderSubjects(user.publish)} }`,
    `        subscribe { allow: ${renderSubjects(subscribe)} }`,
  ];
  if (user.answerSecondsMax !== null) {
    invariant(Number.isInteger(user.answerSecondsMax), "answerSecondsMax is a whole number");
    lines.push(`        allow_responses { max: 1, expires: "${user.answerSecondsMax}s" }`);
  }
  return [...lines, "      }", "    }"];
}

function renderSecret({ name, secret }: NatsUser): string[] {
  if (secret.kind === "nkey") {
    invariant(/^U[A-Z2-7]{55}$/.test(secret.publicKey), `not a user's public key, for ${name}`);
    return [`      nkey: ${secret.publicKey}`];
  }
  if (secret.kind === "password") {
    return [`      user: ${quoted(name)}`, `      password: ${quoted(secret.password)}`];
  }
  invariant(/^[A-Za-z_][A-Za-z0-9_]*$/.test(secret.variable), `not a variable: ${secret.variable}`);
  return [`      user: ${quoted(name)}`, `      password: $${secret.variable}`];
}

/** An empty allow list would allow all; a subject that nobody uses stands for "nothing". */
function renderSubjects(subjects: readonly string[]): string {
  if (subjects.length === 0) return `["baton.nothing"]`;
  return `[${subjects.map(quoted).join(", ")}]`;
}

/** nats-server reads these escapes in double quotes, and no variables there. */
function quoted(text: string): string {
  invariant(!/\p{Cc}/u.test(text), "no control characters in names, passwords and subjects");
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
