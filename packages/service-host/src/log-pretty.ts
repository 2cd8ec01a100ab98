const colours: Readonly<Record<string, string>> = {
  debug: "\u001b[90m",
  info: "\u001b[32m",
  warn: "\u001b[33m",
  error: "\u001b[31m",
};
const dim = "\u001b[2m";
const plain = "\u001b[0m";

/**
 * One JSON log line as one line for people: local time, level, service, message, then the fields as
 * `key=value`; the stacks of errors follow, indented. A line that is no JSON is given back.
 */
export function prettyLine(line: string, options: { readonly colour: boolean }): string {
  let record: Record<string, unknown>;
  try {
    record = JSON.parse(line) as Record<string, unknown>;
  } catch {
    return line;
  }
  const { level, time, service, msg, ...fields } = record;
  const paint = (colour: string, text: string) => (options.colour ? colour + text + plain : text);
  const stacks: string[] = [];
  const pairs = Object.entries(fields).map(([key, value]) => {
    const { text, stack } = fieldText(value);
    if (stack !== null) stacks.push(stack.replace(/^/gm, "    "));
    return `${paint(dim, `${key}=`)}${text}`;
  });
  const name = String(level);
  const head = [
    paint(dim, timeText(String(time))),
    paint(colours[name] ?? "", name.toUpperCase().padEnd(5)),
    paint(dim, String(service)),
    escaped(String(msg)),
  ];
  return `${[...head, ...pairs].join(" ")}\n${stacks.map((stack) => `${stack}\n`).join("")}`;
}

function timeText(time: string): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return time;
  const part = (value: number, width: number) => String(value).padStart(width, "0");
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map((v) => part(v, 2));
  return `${clock.join(":")}.${part(date.getMilliseconds(), 3)}`;
}

function fieldText(value: unknown): { text: string; stack: string | null } {
  if (typeof value === "string") {
    return { text: /^[\w.:/@+-]+$/.test(value) ? value : JSON.stringify(value), stack: null };
  }
  if (typeof value === "object" && value !== null && "stack" in value) {
    const { stack, ...rest } = value;
    return { text: JSON.stringify(rest), stack: escaped(String(stack), true) };
  }
  return { text: JSON.stringify(value), stack: null };
}

/** Terminal control characters in a log would let a request write to the operator's screen. */
function escaped(text: string, keepLines = false): string {
  return text.replace(/\p{Cc}/gu, (character) =>
    keepLines && character === "\n"
      ? character
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
