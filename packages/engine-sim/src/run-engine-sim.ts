import { createEngineSim } from "./engine-sim.ts";
import { type EngineSimOptions, engineSimHelp, parseEngineSimOptions } from "./options.ts";

const badUsage = 64;
const drainMs = 3000;
/** How long a dying engine's last answers have to leave. */
const lastWordsMs = 50;

/**
 * The process `baton engine-sim`: parses `argv` (without node and script), prints the ready line and
 * runs until SIGTERM, SIGINT, a fatal handle or its parent's end. Resolves to the exit code; the
 * caller ends the process with it, as connections may still be open.
 */
export async function runEngineSim(argv: readonly string[]): Promise<number> {
  const parsed = parseEngineSimOptions(argv);
  if (!parsed.ok) {
    process.stderr.write(`${parsed.error}\nSee --help for the options.\n`);
    return badUsage;
  }
  if (parsed.value === "help") {
    process.stdout.write(engineSimHelp);
    return 0;
  }
  try {
    return await serve(parsed.value);
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    process.stderr.write(`The engine cannot start: ${cause}\n`);
    return 1;
  }
}

async function serve(options: EngineSimOptions): Promise<number> {
  const { promise: ended, resolve: end } = Promise.withResolvers<number>();
  const engine = await createEngineSim(options, (reason) => {
    process.stderr.write(`EngineCore encountered a fatal error: ${reason}\n`);
    setTimeout(() => end(1), lastWordsMs);
  });
  const stop = (): void => void engine.stop(drainMs).then(() => end(0));
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  if (options.diesWithParent) watchParent(() => end(0));
  const ready = {
    ready: true,
    url: engine.url,
    role: options.role,
    engineId: engine.engineId,
    model: options.model,
    kvEvents: engine.kvEvents,
    kvReplay: engine.kvReplay,
    sideChannelPort: engine.sideChannelPort,
    pid: process.pid,
  };
  process.stdout.write(`${JSON.stringify(ready)}\n`);
  return ended;
}

/** A child with an IPC channel watches that; any other its standard input. */
function watchParent(onGone: () => void): void {
  if (process.connected === true) {
    process.on("disconnect", onGone);
    return;
  }
  process.stdin.on("end", onGone);
  process.stdin.on("close", onGone);
  process.stdin.on("error", onGone);
  process.stdin.resume();
}
