import { connectNatsBus, type NatsAuth, type NatsTls, type ObservedBus } from "@baton/bus";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome } from "@baton/kit";
import type { Logger } from "@baton/ports";
import { field, readSecretFile } from "@baton/service-host";
import { z } from "zod";

export interface BusSettings {
  readonly url: string;
  readonly user: string | null;
  readonly passwordFile: string | null;
  readonly tokenFile: string | null;
  readonly nkeySeedFile: string | null;
  readonly credsFile: string | null;
  readonly caFile: string | null;
  readonly certFile: string | null;
  readonly keyFile: string | null;
  readonly connectDeadlineMs: number;
}

const path = (description: string) => field.text({ description }).nullable().default(null);
const secretPath = (description: string) =>
  field.secretFile({ description }).nullable().default(null);

/** The section `bus` of every service that runs as a process of its own. */
export function busSection() {
  return z.strictObject({
    url: field.url({
      schemes: ["nats", "tls"],
      description:
        "NATS server; several separated by commas are not needed, servers tell of each other.",
    }),
    user: field.text({ description: "NATS user; with passwordFile." }).nullable().default(null),
    passwordFile: secretPath("Password of the NATS user."),
    tokenFile: secretPath("NATS token, instead of a user."),
    nkeySeedFile: secretPath("NATS nkey seed, instead of a user."),
    credsFile: secretPath("NATS credentials (JWT and seed), instead of a user."),
    caFile: path("Authorities to trust for TLS, PEM; null takes the system's."),
    certFile: path("Client certificate for TLS, PEM."),
    keyFile: path("Key of certFile, PEM."),
    connectDeadlineMs: field
      .durationMs({
        min: 1,
        description: "How long the first connection is tried before giving up.",
      })
      .default(30_000),
  });
}

/**
 * Connects. Each service has an inbox prefix of its own, so that its NATS permissions can leave out
 * everybody else's answers. Errors: BATON_BUS_UNREACHABLE, BATON_CONFIG_INVALID.
 */
export async function openBus(
  settings: BusSettings,
  service: string,
  ports: { readonly logger: Logger; readonly signal: AbortSignal },
): Promise<Outcome<ObservedBus, BatonError>> {
  const auth = readAuth(settings);
  if (!auth.ok) return auth;
  const { caFile, certFile, keyFile } = settings;
  const tls: NatsTls = {
    ...(caFile === null ? {} : { caFile }),
    ...(certFile === null ? {} : { certFile }),
    ...(keyFile === null ? {} : { keyFile }),
  };
  return connectNatsBus({
    url: settings.url,
    name: service,
    inboxPrefix: `_INBOX_${service}`,
    connectMsMax: settings.connectDeadlineMs,
    signal: ports.signal,
    ...(auth.value === null ? {} : { auth: auth.value }),
    ...(Object.keys(tls).length === 0 ? {} : { tls }),
    onSlowConsumer: (notice) => ports.logger.warn({ ...notice }, "slow bus consumer"),
    onError({ kind, subject, error, thrown }) {
      const fields = { kind, subject, code: error.code, problem: error.message };
      ports.logger.error(thrown === undefined ? fields : { ...fields, error: thrown }, "bus fault");
    },
  });
}

function readAuth(settings: BusSettings): Outcome<NatsAuth | null, BatonError> {
  const { user, passwordFile, tokenFile, nkeySeedFile, credsFile } = settings;
  const given = [user, tokenFile, nkeySeedFile, credsFile].filter((each) => each !== null);
  if (given.length > 1 || (user === null) !== (passwordFile === null)) {
    const message =
      "bus: set one of user with passwordFile, tokenFile, nkeySeedFile and credsFile, or none";
    return fail(batonError("BATON_CONFIG_INVALID", message));
  }
  if (nkeySeedFile !== null) return { ok: true, value: { kind: "nkey", seedFile: nkeySeedFile } };
  if (credsFile !== null) return { ok: true, value: { kind: "creds", file: credsFile } };
  const file = passwordFile ?? tokenFile;
  if (file === null) return { ok: true, value: null };
  const read = readSecretFile(file);
  if (!read.ok) return read;
  const { secret } = read.value;
  return {
    ok: true,
    value:
      user === null
        ? { kind: "token", token: secret }
        : { kind: "password", user, password: secret },
  };
}
