import { renderNatsAuthorization } from "@baton/bus";
import { exitConfig, loadConfig, printConfig, problemText } from "@baton/service-host";
import { natsUserOf } from "@baton/service-wiring";
import { services } from "./service-command.ts";

const help = `Checks or prints a service's configuration, with the environment as it is now.

Usage: npm run baton -- config check FILE [SERVICE]
       npm run baton -- config print FILE [SERVICE]
       npm run baton -- config nats      users and permissions for nats-server, passwords
                                         from the environment of the server

SERVICE is ${Object.keys(services).join(", ")}; left out, it is taken from the file's
name, else every service that the file fits is named. Secrets are masked.
`;

type ServiceName = keyof typeof services;

export async function runConfig(argv: readonly string[]): Promise<number> {
  const [verb, file, given] = argv;
  if (verb === "--help" || verb === "-h") {
    process.stdout.write(help);
    return 0;
  }
  if (verb === "nats") {
    process.stdout.write(natsConfig());
    return 0;
  }
  if ((verb !== "check" && verb !== "print") || file === undefined) {
    process.stderr.write(help);
    return exitConfig;
  }
  const name = given ?? guess(file);
  if (name === null || !(name in services)) {
    process.stderr.write(`Which service is ${file} for? ${Object.keys(services).join(", ")}\n`);
    return exitConfig;
  }
  const { schema } = services[name as ServiceName];
  const loaded = loadConfig({ schema, file, env: process.env });
  if (!loaded.ok) {
    for (const problem of loaded.error) process.stderr.write(`${problemText(problem)}\n`);
    process.stderr.write(`${loaded.error.length} problem(s) for ${name}\n`);
    return exitConfig;
  }
  for (const warning of loaded.value.warnings)
    process.stderr.write(`warning: ${problemText(warning)}\n`);
  if (verb === "print") process.stdout.write(printConfig(loaded.value));
  else process.stdout.write(`${file} is a valid configuration for ${name}\n`);
  return 0;
}

function natsConfig(): string {
  const users = (["frontend", "prefill-scheduler", "decode-scheduler"] as const).map((service) =>
    natsUserOf(service, {
      kind: "environment",
      variable: `BATON_NATS_${service.toUpperCase().replace("-", "_")}_PASSWORD`,
    }),
  );
  return renderNatsAuthorization(users);
}

function guess(file: string): string | null {
  const names = Object.keys(services).filter((name) => file.includes(name));
  return names.length === 1 ? names[0]! : null;
}
