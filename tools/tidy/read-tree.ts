import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** What .gitignore leaves out, and git's own folder. */
const ignored = new Set(["node_modules", ".git", ".baton", ".tap", "coverage"]);
const readBytesMax = 1_000_000;

/**
 * Every file under `root`. A file that holds a NUL byte, or more than 1 MB, is listed without its
 * text.
 */
export function readTree(root: string): Map<string, string | null> {
  const files = new Map<string, string | null>();
  visit(root, "", files);
  return files;
}

function visit(root: string, folder: string, files: Map<string, string | null>): void {
  const entries = readdirSync(join(root, folder), { withFileTypes: true });
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory() && !ignored.has(entry.name)) {
      visit(root, path, files);
    } else if (entry.isFile() && !entry.name.endsWith(".log")) {
      files.set(path, readText(join(root, path)));
    }
  }
}

function readText(file: string): string | null {
  if (statSync(file).size > readBytesMax) {
    return null;
  }
  const text = readFileSync(file, "utf8");
  return text.includes("\0") ? null : text;
}
