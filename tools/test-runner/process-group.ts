import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const pollMs = 50;

/** Sends a signal to every process of the group; a group that is gone is fine. */
export function killGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) {
      throw error;
    }
  }
}

/**
 * Commands of the processes that are left in a group, after a short grace for those that are just
 * ending. Looks into /proc; where there is none, nothing is reported.
 */
export async function leftInGroup(group: number, graceMs: number): Promise<string[]> {
  const deadlineMs = performance.now() + graceMs;
  for (;;) {
    const left = membersOf(group);
    if (left.length === 0 || performance.now() >= deadlineMs) {
      return left;
    }
    await sleep(pollMs);
  }
}

function membersOf(group: number): string[] {
  const commands: string[] = [];
  for (const pid of pids()) {
    try {
      // pid (name) state ppid pgrp …; the name may hold spaces and parentheses.
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const [state, , pgrp] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (Number(pgrp) === group && state !== "Z" && state !== "X") {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
        commands.push(`${command} (pid ${pid})`);
      }
    } catch {
      // It ended while we looked.
    }
  }
  return commands;
}

function pids(): string[] {
  try {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  } catch {
    return [];
  }
}
