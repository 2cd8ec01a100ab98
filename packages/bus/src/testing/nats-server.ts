import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface NatsServerOptions {
  /** nats-server configuration, without host and port. */
  readonly config?: string;
  /** Default: a free one, chosen by the server itself. */
  readonly port?: number;
  readonly env?: Readonly<Record<string, string>>;
}

export interface NatsServer {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** Ends the process at once, as a crash would. Idempotent. */
  stop(): Promise<void>;
  /** The same port again, with the same or another configuration. Stops it first when it runs. */
  restart(change?: { readonly config: string }): Promise<void>;
}

const startMsMax = 15_000;
const hint = "nats-server not found; set BATON_NATS_SERVER or apt-get install nats-server";
const folders = ["/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/**
 * A real nats-server on a loopback port, for tests; resolves once it accepts connections. Null when
 * there is no nats-server on this machine, so that the test can be skipped, but an error in CI.
 */
export async function startNatsServer(options: NatsServerOptions = {}): Promise<NatsServer | null> {
  const binary = findBinary();
  if (binary === null) {
    if (process.env["CI"] === "true") throw new Error(hint);
    console.error(`skipped: ${hint}`);
    return null;
  }
  const server = new ServerProcess(binary, options);
  await server.start();
  return server;
}

function findBinary(): string | null {
  const named = process.env["BATON_NATS_SERVER"];
  if (named !== undefined) {
    if (existsSync(named)) return named;
    throw new Error(`BATON_NATS_SERVER is ${named}, which does not exist`);
  }
  const path = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const all = [...path, ...folders].map((folder) => join(folder, "nats-server"));
  return all.find((file) => existsSync(file)) ?? null;
}

class ServerProcess implements NatsServer {
  readonly #binary: string;
  readonly #env: Readonly<Record<string, string>>;
  #config: string;
  #port: number | null;
  #child: ChildProcess | null = null;
  #log = "";

  constructor(binary: string, options: NatsServerOptions) {
    this.#binary = binary;
    this.#env = options.env ?? {};
    this.#config = options.config ?? "";
    this.#port = options.port ?? null;
  }

  get port(): number {
    if (this.#port === null) throw new Error("nats-server has not started");
    return this.#port;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("nats-server does not run");
    return pid;
  }

  async start(): Promise<void> {
    const folder = mkdtempSync(join(tmpdir(), "baton-nats-"));
    try {
      await this.#startIn(folder);
    } catch (thrown) {
      await this.stop();
      throw thrown;
    } finally {
      // The server has read its configuration and told its port; it needs neither again.
      rmSync(folder, { recursive: true, force: true });
    }
  }

  async restart(change?: { readonly config: string }): Promise<void> {
    await this.stop();
    if (change !== undefined) this.#config = change.config;
    await this.start();
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#child = null;
    process.off("exit", this.#killAtExit);
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    child.once("exit", () => resolve());
    // Ends a stopped (SIGSTOP) server too.
    child.kill("SIGKILL");
    await promise;
  }

  readonly #killAtExit = (): void => {
    this.#child?.kill("SIGKILL");
  };

  async #startIn(folder: string): Promise<void> {
    const file = join(folder, "nats-server.conf");
    writeFileSync(file, this.#config, { mode: 0o600 });
    const listen = ["-a", "127.0.0.1", "-p", String(this.#port ?? -1)];
    const child = spawn(this.#binary, ["-c", file, ...listen, "--ports_file_dir", folder], {
      env: { ...process.env, ...this.#env },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#child = child;
    this.#log = "";
    child.stderr.on("data", (bytes) => {
      this.#log = (this.#log + String(bytes)).slice(-8192);
    });
    let isGone = false;
    child.once("error", (error) => {
      isGone = true;
      this.#log += error.message;
    });
    child.once("exit", () => {
      isGone = true;
    });
    process.on("exit", this.#killAtExit);
    const untilMs = performance.now() + startMsMax;
    for (;;) {
      const port = readPort(folder);
      if (port !== null) {
        this.#port = port;
        return;
      }
      if (isGone || performance.now() > untilMs) {
        throw new Error(`nats-server did not start: ${this.#log}`);
      }
      await sleep(5);
    }
  }
}

/** The server writes its ports file once it listens. */
function readPort(folder: string): number | null {
  const name = readdirSync(folder).find((each) => each.endsWith(".ports"));
  if (name === undefined) return null;
  try {
    const ports: { nats?: string[] } = JSON.parse(readFileSync(join(folder, name), "utf8"));
    const port = Number(URL.parse(ports.nats?.[0] ?? "")?.port);
    return port > 0 ? port : null;
  } catch {
    // Seen while it is being written.
    return null;
  }
}
