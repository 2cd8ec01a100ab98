/** What stands where a secret was. */
export const mask = "***";

/** Longest text that is searched for secrets; what comes after is cut, so the cost has a cap. */
const textLengthMax = 8_192;

const urlPassword = /([a-z][a-z0-9+.-]*:\/\/)([^\s/?#@:]*):([^\s/?#]*)@/gi;
const urlUser = /((?:nats|tls|wss?):\/\/)([^\s/?#@:]+)@/gi;
const querySecret = /([?&](?:api[-_]?key|access[-_]?token|token|password|secret)=)[^&\s#"']+/gi;
const jsonSecret =
  /("(?:api[-_]?key|access[-_]?token|token|password|secret|authorization)"\s*:\s*")[^"]+"/gi;
const authorization = /\b(bearer|basic)\s+[a-z0-9._~+/=-]{6,}/gi;
const providerKey = /\b(sk|hf|nvapi|ghp)[-_][a-z0-9_-]{12,}/gi;

/**
 * Text without the secrets that have a recognisable form: passwords in URLs, a NATS token in place
 * of the user name, secrets in queries and JSON, Authorization values, keys with a known prefix.
 * Cost: one pass over at most 8 KiB, seven when there may be something.
 */
export function maskText(text: string): string {
  const short = text.length > textLengthMax ? `${text.slice(0, textLengthMax)}… (cut)` : text;
  if (!mayHoldSecret.test(short)) return short;
  return short
    .replace(urlPassword, `$1$2:${mask}@`)
    .replace(urlUser, `$1${mask}@`)
    .replace(querySecret, `$1${mask}`)
    .replace(jsonSecret, `$1${mask}"`)
    .replace(authorization, `$1 ${mask}`)
    .replace(providerKey, `$1-${mask}`);
}

/** Matches whatever one of the forms above matches, and little else. */
const mayHoldSecret =
  /:\/\/[^/]*@|"\s*:\s*"|[?&][a-z_-]*=|\b(bearer|basic)\s|\b(sk|hf|nvapi|ghp)[-_]/i;

const secretWords = new Set([
  "authorization",
  "cookie",
  "credential",
  "credentials",
  "passphrase",
  "passwd",
  "password",
  "secret",
  "token",
]);

/**
 * Whether a field of this name holds a secret when its value is text. Counts such as `promptTokens`
 * are not meant: the plural `tokens` is a unit here.
 */
export function isSecretName(name: string): boolean {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
  const last = words.at(-1) ?? "";
  if (secretWords.has(last)) return true;
  return (
    last === "apikey" ||
    (last === "key" && /^(api|private|access|secret)$/.test(words.at(-2) ?? ""))
  );
}
