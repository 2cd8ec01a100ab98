import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { NatsAuth } from "./nats-options.ts";

export interface NatsUrls {
  /** `host:port`, as the client takes it. */
  readonly servers: readonly string[];
  readonly needsTls: boolean;
  readonly auth: NatsAuth | null;
  /** All URLs with secrets masked, for messages. */
  readonly shown: string;
}

/** Reads one URL, several with commas, or a list. Errors: BATON_CONFIG_INVALID. */
export function readNatsUrls(input: string | readonly string[]): Outcome<NatsUrls, BatonError> {
  const texts = (typeof input === "string" ? input.split(",") : input).map((text) => text.trim());
  const urls = texts.map(readUrl);
  const shown = urls.map((url, index) => (url === null ? `URL ${index + 1}` : masked(url)));
  const bad = urls.indexOf(null);
  // A URL that cannot be read is not shown: it may hold a password anywhere.
  if (bad >= 0 || urls.length === 0) {
    return invalid(`${shown[bad] ?? "the NATS URL"} is not nats://host:port or tls://host:port`);
  }
  const good = urls.filter((url) => url !== null);
  const logins = good.filter((url) => url.username !== "");
  if (new Set(logins.map((url) => `${url.username}:${url.password}`)).size > 1) {
    return invalid(`the NATS URLs carry different credentials: ${shown.join(", ")}`);
  }
  return ok({
    servers: good.map((url) => `${url.hostname}:${url.port || "4222"}`),
    needsTls: good.some((url) => url.protocol === "tls:"),
    auth: logins[0] === undefined ? null : authOf(logins[0]),
    shown: shown.join(", "),
  });
}

function readUrl(text: string): URL | null {
  const url = URL.parse(text);
  if (url === null || !["nats:", "tls:"].includes(url.protocol) || url.hostname === "") return null;
  if (!["", "/"].includes(url.pathname) || url.search !== "" || url.hash !== "") return null;
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return null;
  }
  return url;
}

function authOf(url: URL): NatsAuth {
  const user = decodeURIComponent(url.username);
  if (url.password === "") return { kind: "token", token: user };
  return { kind: "password", user, password: decodeURIComponent(url.password) };
}

/** A user name without a password is a token, so a secret. */
function masked(url: URL): string {
  const host = `${url.protocol}//`;
  if (url.username === "") return `${host}${url.host}`;
  const login = url.password === "" ? "***" : `${url.username}:***`;
  return `${host}${login}@${url.host}`;
}

function invalid(message: string): Outcome<never, BatonError> {
  return fail(batonError("BATON_CONFIG_INVALID", message));
}
