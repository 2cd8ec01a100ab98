import type { Workspace } from "./workspace.ts";

export interface Finding {
  readonly path: string;
  /** From 1. */
  readonly line: number;
  /** What is wrong and what to write instead. */
  readonly message: string;
}

export interface Rule {
  readonly name: string;
  readonly check: (workspace: Workspace) => Iterable<Finding>;
}
