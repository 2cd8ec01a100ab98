import { runEngineSim } from "@baton/engine-sim";
import { exitConfig } from "@baton/service-host";
import { runBench } from "./bench-command.ts";
import { runConfig } from "./config-command.ts";
import { runStart } from "./laptop/start-command.ts";
import { runReplayCommand } from "./replay-command.ts";
import { runServiceCommand, services } from "./service-command.ts";

const help = `Baton: an orchestrator for LLM inference fleets that split prefill from decode

Usage: npm run baton -- COMMAND [options]        (npm start is short for COMMAND start)

  start                 everything on this machine, simulated engines or your own
  replay                send a trace to a running frontend and report
  bench NAME            one benchmark (npm run bench -- NAME)
  config check FILE     check a service's configuration; config print FILE prints it whole
  frontend              one service as a process of its own (--config FILE)
  prefill-scheduler     the same
  decode-scheduler      the same
  engine-sim            one simulated engine
  help [COMMAND]        this text, or a command's own

Every command has --help. Exit codes: 0 well, 1 the work failed, 64 bad usage or configuration,
69 something it needs is unavailable or its port is taken, 70 crash, 75 drain deadline passed.
`;

/** Runs one command; resolves with the exit code. */
export async function runCli(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  if (command === "help" && rest[0] !== undefined) return runCli([rest[0], "--help"]);
  switch (command) {
    case undefined:
    case "help":
    case "--help":
    case "-h":
      process.stdout.write(help);
      return command === undefined ? exitConfig : 0;
    case "start":
      return runStart(rest);
    case "replay":
      return runReplayCommand(rest);
    case "bench":
      return runBench(rest);
    case "config":
      return runConfig(rest);
    case "engine-sim":
      return runEngineSim(rest);
    default:
      if (command in services) return runServiceCommand(command as keyof typeof services, rest);
      process.stderr.write(`unknown command "${command}"\n\n${help}`);
      return exitConfig;
  }
}
