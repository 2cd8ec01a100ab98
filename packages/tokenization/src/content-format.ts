import type { Template } from "@huggingface/jinja";
import type { ContentFormat } from "./conversation.ts";

/** A node of the parsed template, as far as it is read here. */
interface Node {
  readonly type?: string;
  readonly [field: string]: unknown;
}

/**
 * `parts` when the template loops over the content of a message, `text` otherwise: the rule by which
 * vLLM decides (`--chat-template-content-format auto`). Names given to `messages` or to a message by
 * a set statement or a loop are followed, through filters, tests and slices; scopes are not told apart.
 */
export function detectContentFormat(template: Template): ContentFormat {
  const nodes = [...walk(template.parsed)];
  const lists = namesOf(nodes, new Set(["messages"]));
  const items = new Set<string>();
  for (const node of loops(nodes)) {
    if (isNamed(core(node["iterable"]), lists)) addName(items, node["loopvar"]);
  }
  const isContent = (value: unknown): boolean => {
    const node = core(value);
    return (
      node?.type === "MemberExpression" && isNamed(node["object"], items) && isContentKey(node)
    );
  };
  return loops(nodes).some((node) => isContent(node["iterable"])) ? "parts" : "text";
}

function loops(nodes: readonly Node[]): readonly Node[] {
  return nodes.filter((node) => node.type === "For");
}

/** The names that set statements give to one of `names`, and these, until no more are found. */
function namesOf(nodes: readonly Node[], names: Set<string>): Set<string> {
  for (let before = -1; names.size !== before; ) {
    before = names.size;
    for (const node of nodes) {
      if (node.type === "Set" && isNamed(core(node["value"]), names)) {
        addName(names, node["assignee"]);
      }
    }
  }
  return names;
}

/** What is left of an expression without filters, tests and slices. */
function core(value: unknown): Node | null {
  let node = value as Node | null | undefined;
  for (;;) {
    if (node === null || node === undefined) return null;
    const isSlice =
      node.type === "MemberExpression" && (node["property"] as Node).type === "SliceExpression";
    if (node.type === "FilterExpression" || node.type === "TestExpression") {
      node = node["operand"] as Node;
    } else if (isSlice) node = node["object"] as Node;
    else return node;
  }
}

function isNamed(value: unknown, names: ReadonlySet<string>): boolean {
  const node = value as Node | null;
  return node?.type === "Identifier" && names.has(node["value"] as string);
}

function isContentKey(member: Node): boolean {
  const property = member["property"] as Node;
  const wanted = member["computed"] === true ? "StringLiteral" : "Identifier";
  return property.type === wanted && property["value"] === "content";
}

function addName(names: Set<string>, value: unknown): void {
  const node = value as Node;
  if (node.type === "Identifier") names.add(node["value"] as string);
}

function* walk(value: unknown): Generator<Node> {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) for (const item of value) yield* walk(item);
  else if (value instanceof Map) yield* walk([...value.entries()].flat());
  else {
    yield value as Node;
    yield* walk(Object.values(value));
  }
}
