import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { Test } from "tap";

const bootstrapFolder = dirname(import.meta.dirname);

export interface Run {
  readonly pid: number;
  /** Resolves when the text has appeared on stdout; the test's own timeout bounds the wait. */
  readonly sees: (text: string) => Promise<void>;
  readonly ended: Promise<Ended>;
  readonly kill: (signal: NodeJS.Signals) => void;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly command?: string;
  readonly args?: readonly string[];
  /** A module that runs before the bootstrap, to pretend another host. */
  readonly preload?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A small workspace with the real bootstrap, in a folder with spaces in its name. */
export class Checkout {
  readonly root = mkdtempSync(join(tmpdir(), "a baton checkout "));
  readonly stubs = join(this.root, "stub tools");
  readonly #test: Test;

  constructor(t: Test) {
    this.#test = t;
    t.teardown(() => rmSync(this.root, { recursive: true, force: true }));
    mkdirSync(this.stubs);
    for (const name of readdirSync(bootstrapFolder).filter((file) => file.endsWith(".mjs"))) {
      mkdirSync(join(this.root, "tools/bootstrap"), { recursive: true });
      cpSync(join(bootstrapFolder, name), join(this.root, "tools/bootstrap", name));
    }
    this.write("package.json", '{ "name": "x", "devDependencies": { "tap": "1" } }');
    this.write(
      "pnpm-workspace.yaml",
      "packages:\n  - packages/*\n  - tools\n\ncatalog:\n  tap: 1\n",
    );
    this.write("pnpm-lock.yaml", "lockfileVersion: 9\n");
    this.write("packages/a/package.json", '{ "name": "a", "dependencies": { "b": "1" } }');
    this.write(
      "packages/cli/src/main.ts",
      `const args: string[] = process.argv.slice(2);
       console.log(JSON.stringify({ args, execPath: process.execPath, pid: process.pid }));
       process.on("disconnect", () => { console.log("parent gone"); process.exit(9); });
       const [, what, detail] = args;
       if (what === "exit") process.exit(Number(detail));
       if (what === "die") process.kill(process.pid, detail);
       if (what === "wait") {
         process.on("SIGTERM", () => { console.log("draining"); process.exit(7); });
         process.on("SIGHUP", () => { console.log("hung up"); process.exit(8); });
         console.log("ready");
       } else {
         process.channel?.unref();
       }`,
    );
    this.stub("pnpm", workingPnpm);
  }

  write(file: string, text: string): void {
    mkdirSync(dirname(join(this.root, file)), { recursive: true });
    writeFileSync(join(this.root, file), text);
  }

  read(file: string): string {
    return existsSync(join(this.root, file)) ? readFileSync(join(this.root, file), "utf8") : "";
  }

  /** Puts an executable shell script first on PATH. */
  stub(name: string, script: string): void {
    const file = join(this.stubs, name);
    writeFileSync(
      file,
      `#!/bin/sh\nLOG="${this.root}/calls.log"\nREAL="${process.execPath}"\n${script}\n`,
    );
    chmodSync(file, 0o755);
  }

  /** Lines that the stubs have logged. */
  calls(): string[] {
    return this.read("calls.log").split("\n").filter(Boolean);
  }

  start({ command = "baton", args = [], preload, env = {} }: RunOptions = {}): Run {
    const preloads = preload === undefined ? [] : ["--import", preload];
    const child = spawn(
      process.execPath,
      [...preloads, join(this.root, "tools/bootstrap/bootstrap.mjs"), command, ...args],
      {
        cwd: this.root,
        stdio: ["ignore", "pipe", "pipe"],
        env: { HOME: this.root, PATH: `${this.stubs}${delimiter}/usr/bin:/bin`, ...env },
      },
    );
    this.#test.teardown(() => child.kill("SIGKILL"));
    let stdout = "";
    let stderr = "";
    const more = new EventTarget();
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk;
      more.dispatchEvent(new Event("stdout"));
    });
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk;
    });
    const ended = once(child, "close").then(([code, signal]) => ({ code, signal, stdout, stderr }));
    return {
      pid: child.pid ?? 0,
      ended,
      kill: (signal) => child.kill(signal),
      sees: async (text) => {
        while (!stdout.includes(text)) {
          await Promise.race([once(more, "stdout"), ended]);
          if (!stdout.includes(text) && child.exitCode !== null) {
            throw new Error(`ended without "${text}": ${stdout}${stderr}`);
          }
        }
      },
    };
  }

  run(options: RunOptions = {}): Promise<Ended> {
    return this.start(options).ended;
  }
}

const workingPnpm = `
if [ "$1" = "--version" ]; then echo 12.9.0; exit 0; fi
echo "pnpm $*" >> "$LOG"
mkdir -p node_modules packages/a/node_modules
echo "{}" > node_modules/.modules.yaml`;

/** An npm that puts a Node (or pnpm) in place as the real one does. */
export const workingNpm = `
echo "npm $*" >> "$LOG"
for arg in "$@"; do
  case "$arg" in
    --prefix=*) PREFIX="\${arg#--prefix=}" ;;
    *@*) SPEC="$arg" ;;
  esac
done
NAME="\${SPEC%@*}"; VERSION="\${SPEC##*@}"
case "$NAME" in node-*) FILE=bin/node ;; *) FILE=pnpm ;; esac
TO="$PREFIX/node_modules/$NAME/$FILE"
mkdir -p "$(dirname "$TO")"
case "$NAME" in
  node-*) printf '#!/bin/sh\\n[ "$1" = "--version" ] && echo v%s && exit 0\\nFETCHED=yes exec "%s" "$@"\\n' "$VERSION" "$REAL" > "$TO" ;;
  *) printf '#!/bin/sh\\n[ "$1" = "--version" ] && echo %s && exit 0\\necho "fetched pnpm $*" >> "%s"\\nmkdir -p node_modules packages/a/node_modules; echo "{}" > node_modules/.modules.yaml\\n' "$VERSION" "$LOG" > "$TO" ;;
esac
chmod +x "$TO"`;
