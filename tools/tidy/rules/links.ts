import type { Rule } from "../rule.ts";
import { folderOf, resolvePath } from "../workspace.ts";

/** Relative links of Markdown files lead to files and headings that exist. */
export const links: Rule = {
  name: "links",
  *check({ files }) {
    const folders = foldersOf(files.keys());
    for (const [path, text] of files) {
      if (text === null || !path.endsWith(".md")) {
        continue;
      }
      for (const { target, line } of linksOf(text)) {
        const [file = "", heading] = target.split("#");
        const to = file === "" ? path : resolvePath(folderOf(path), decodeURI(file));
        if (!files.has(to) && !folders.has(to)) {
          yield {
            path,
            line,
            message: `link to ${target}, which does not exist; mend or remove it`,
          };
        } else if (heading !== undefined && to.endsWith(".md")) {
          const headings = headingsOf(files.get(to) ?? "");
          if (!headings.has(heading)) {
            yield { path, line, message: `link to ${target}; ${to} has no heading #${heading}` };
          }
        }
      }
    }
  },
};

function foldersOf(paths: Iterable<string>): Set<string> {
  const folders = new Set<string>();
  for (const path of paths) {
    for (let folder = folderOf(path); folder !== ""; folder = folderOf(folder)) {
      folders.add(folder);
    }
  }
  return folders;
}

function* linksOf(markdown: string): Generator<{ target: string; line: number }> {
  for (const { text, line } of proseLines(markdown)) {
    const prose = text.replace(/`[^`]*`/g, "");
    for (const [, target = ""] of prose.matchAll(/\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)/g)) {
      if (!/^([a-z]+:|\/\/)/i.test(target)) {
        yield { target, line };
      }
    }
  }
}

/** As GitHub makes anchors: lower case, punctuation dropped, spaces to hyphens, repeats numbered. */
function headingsOf(markdown: string): Set<string> {
  const anchors = new Set<string>();
  for (const { text } of proseLines(markdown)) {
    const title = /^#{1,6}\s+(.*?)\s*#*$/.exec(text)?.[1];
    if (title !== undefined) {
      const base = title
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(/\s/g, "-");
      let anchor = base;
      for (let count = 1; anchors.has(anchor); count += 1) {
        anchor = `${base}-${count}`;
      }
      anchors.add(anchor);
    }
  }
  return anchors;
}

function* proseLines(markdown: string): Generator<{ text: string; line: number }> {
  let isFenced = false;
  for (const [index, text] of markdown.split("\n").entries()) {
    if (/^\s*(```|~~~)/.test(text)) {
      isFenced = !isFenced;
    } else if (!isFenced) {
      yield { text, line: index + 1 };
    }
  }
}
