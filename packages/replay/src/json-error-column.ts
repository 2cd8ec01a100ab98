const tokens = {
  space: /[ \t\r\n]*/y,
  string: /"(?:[^"\\\p{Cc}]|[\u007f-\u009f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/uy,
  number: /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y,
  word: /true|false|null/y,
};

/**
 * Column, from 1, of the first token that is no JSON; one after the last character when the text
 * ends too early; null when it is JSON. `JSON.parse` names no position for many errors.
 */
export function jsonErrorColumn(text: string): number | null {
  let at = 0;

  function take(token: RegExp): boolean {
    token.lastIndex = at;
    if (!token.test(text)) return false;
    at = token.lastIndex;
    return true;
  }

  function takeChar(char: string): boolean {
    if (text[at] !== char) return false;
    at++;
    return true;
  }

  function value(): boolean {
    take(tokens.space);
    const isWhole =
      text[at] === "{"
        ? list("{", "}", member)
        : text[at] === "["
          ? list("[", "]", value)
          : take(tokens.string) || take(tokens.number) || take(tokens.word);
    if (isWhole) take(tokens.space);
    return isWhole;
  }

  function member(): boolean {
    take(tokens.space);
    if (!take(tokens.string)) return false;
    take(tokens.space);
    return takeChar(":") && value();
  }

  function list(open: string, close: string, item: () => boolean): boolean {
    takeChar(open);
    take(tokens.space);
    if (takeChar(close)) return true;
    while (item()) {
      if (takeChar(close)) return true;
      if (!takeChar(",")) return false;
    }
    return false;
  }

  return value() && at === text.length ? null : at + 1;
}
