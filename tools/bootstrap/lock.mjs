import { mkdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const heartbeatMs = 5_000;
/** A holder on another machine (shared folder, container) is dead after this silence. */
const silenceMsMax = 60_000;
const pollMs = 200;

/**
 * Holds `file` while `work` runs, so that two first runs do not install over each other. A lock whose
 * process is gone is taken over.
 * @template T
 * @param {string} file
 * @param {{onWait: (holder: string) => void, work: () => Promise<T>}} options
 * @returns {Promise<T>}
 */
export async function withLock(file, { onWait, work }) {
  await acquire(file, onWait);
  const heartbeat = setInterval(() => touch(file), heartbeatMs);
  heartbeat.unref();
  const release = () => rmSync(file, { force: true });
  process.once("exit", release);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    process.off("exit", release);
    release();
  }
}

/**
 * @param {string} file
 * @param {(holder: string) => void} onWait
 */
async function acquire(file, onWait) {
  mkdirSync(dirname(file), { recursive: true });
  const ours = JSON.stringify({ pid: process.pid, host: hostname() });
  let waiting = false;
  let tookOver = false;
  for (;;) {
    try {
      writeFileSync(file, ours, { flag: "wx" });
      // Two processes may find the same dead lock; the later remove wins, and the earlier sees it here.
      if (tookOver) {
        await sleep(pollMs / 2);
      }
      if (readFileSync(file, "utf8") === ours) {
        return;
      }
    } catch (error) {
      if (!(error instanceof Error && "code" in error) || !isContention(error.code)) {
        throw error;
      }
    }
    const holder = readHolder(file);
    if (holder !== null && !holder.isAlive) {
      rmSync(file, { force: true });
      tookOver = true;
      continue;
    }
    if (holder !== null && !waiting) {
      waiting = true;
      onWait(`process ${holder.pid}${holder.host === hostname() ? "" : ` on ${holder.host}`}`);
    }
    await sleep(pollMs);
  }
}

/** @param {unknown} code */
function isContention(code) {
  return code === "EEXIST" || code === "ENOENT";
}

/**
 * @param {string} file
 * @returns {{pid: number, host: string, isAlive: boolean} | null} null when it has just gone, or is
 *   being written
 */
function readHolder(file) {
  try {
    const silentMs = Date.now() - statSync(file).mtimeMs;
    const text = readFileSync(file, "utf8");
    if (text === "") {
      return silentMs > silenceMsMax ? { pid: 0, host: "", isAlive: false } : null;
    }
    const { pid, host } = JSON.parse(text);
    const isGone = host === hostname() && !processExists(pid);
    return { pid, host, isAlive: !isGone && silentMs <= silenceMsMax };
  } catch (error) {
    if (error instanceof SyntaxError) {
      return { pid: 0, host: "", isAlive: false };
    }
    return null;
  }
}

/** @param {number} pid */
function processExists(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

/** @param {string} file */
function touch(file) {
  try {
    const now = new Date();
    utimesSync(file, now, now);
  } catch {
    // Taken over or removed by hand: the holder still finishes its own work.
  }
}
