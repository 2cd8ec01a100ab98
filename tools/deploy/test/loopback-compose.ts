import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Compose, type ComposeService, startOrder } from "./compose-lint.ts";

const pollMs = 50;
const healthyMsMax = 60_000;

/**
 * The services of a compose file as plain processes: each gets a loopback address of its own (Linux
 * has all of 127.0.0.0/8), so commands, ports and configuration files are used as they are, with
 * names replaced by addresses. It needs no container engine, and tests all but the image.
 */
export class LoopbackCompose {
  readonly #services: Compose;
  readonly #root: string;
  readonly #natsServer: string;
  readonly #folder = mkdtempSync(join(tmpdir(), "baton-compose-"));
  readonly #addresses = new Map<string, string>();
  readonly #running = new Map<string, ChildProcess>();
  #log = "";

  constructor(options: {
    readonly services: Compose;
    readonly root: string;
    readonly natsServer: string;
  }) {
    this.#services = options.services;
    this.#root = options.root;
    this.#natsServer = options.natsServer;
    const network = `127.${randomInt(1, 255)}.${randomInt(0, 255)}`;
    for (const [index, name] of Object.keys(options.services).entries()) {
      this.#addresses.set(name, `${network}.${index + 1}`);
    }
  }

  /** Starts each service when those it depends on are healthy; resolves when all are. */
  async up(): Promise<void> {
    for (const name of startOrder(this.#services)) {
      this.#start(name, this.#services[name] ?? {});
      await this.#healthy(name);
    }
  }

  url(name: string, port: number): string {
    return `http://${this.#addresses.get(name)}:${port}`;
  }

  /** SIGTERM in reverse order, each to its end. Exit codes by service. */
  async down(): Promise<Record<string, number | null>> {
    const codes: Record<string, number | null> = {};
    for (const [name, child] of [...this.#running].reverse()) {
      const ended = child.exitCode === null ? once(child, "exit") : null;
      child.kill("SIGTERM");
      await ended;
      codes[name] = child.exitCode;
    }
    this.#running.clear();
    rmSync(this.#folder, { recursive: true, force: true });
    return codes;
  }

  /** Ends everything at once; for a test's teardown. */
  kill(): void {
    for (const child of this.#running.values()) {
      child.kill("SIGKILL");
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #start(name: string, service: ComposeService): void {
    const [first = "", ...rest] = service.command ?? [];
    // The first argument is Baton's command, which may be called as the service is.
    const args = [first, ...rest.map((arg) => this.#argument(name, arg))];
    const isBaton = service.build !== undefined;
    const command = isBaton ? process.execPath : this.#natsServer;
    const entry = isBaton ? [join(this.#root, "packages/cli/src/main.ts")] : [];
    const child = spawn(command, [...entry, ...args], {
      cwd: this.#root,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...service.environment },
    });
    const keep = (chunk: Buffer) => {
      this.#log = `${this.#log}${name}: ${chunk}`.slice(-20_000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    this.#running.set(name, child);
  }

  /** /config/x.yaml becomes a copy with addresses in place of names. */
  #argument(name: string, arg: string): string {
    if (!arg.startsWith("/config/")) {
      return this.#addresses.get(arg) ?? arg.replace("0.0.0.0", this.#addresses.get(name) ?? "");
    }
    let text = readFileSync(join(this.#root, "deploy", arg), "utf8");
    for (const [other, address] of this.#addresses) {
      text = text.replaceAll(`//${other}:`, `//${address}:`);
    }
    const file = join(this.#folder, `${name}.yaml`);
    writeFileSync(file, text.replaceAll("0.0.0.0", this.#addresses.get(name) ?? ""));
    return file;
  }

  async #healthy(name: string): Promise<void> {
    const service = this.#services[name] ?? {};
    const url =
      service.build === undefined
        ? `${this.url(name, 8222)}/healthz`
        : this.url(name, Number(service.environment?.["HEALTH_PORT"] ?? 8000)) +
          (service.environment?.["HEALTH_PATH"] ?? "/health");
    const deadlineMs = performance.now() + healthyMsMax;
    for (;;) {
      const isHealthy = await fetch(url).then(
        ({ status }) => status === 200,
        () => false,
      );
      if (isHealthy) {
        return;
      }
      const { exitCode = null } = this.#running.get(name) ?? {};
      if (exitCode !== null || performance.now() > deadlineMs) {
        throw new Error(`${name} is not healthy at ${url} (exit code ${exitCode})\n${this.#log}`);
      }
      await sleep(pollMs);
    }
  }
}

export function findNatsServer(): string | null {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin"];
  const candidates = [
    process.env["BATON_NATS_SERVER"] ?? "",
    ...folders.map((folder) => join(folder, "nats-server")),
  ];
  return candidates.find((file) => file !== "" && existsSync(file)) ?? null;
}
