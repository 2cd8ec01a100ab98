import { readFileSync } from "node:fs";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";

/** Errors: BATON_CONFIG_INVALID, naming the key and the file. */
export function readTextFile(key: string, file: string): Outcome<string, BatonError> {
  try {
    return ok(readFileSync(file, "utf8"));
  } catch (error) {
    const cause = error instanceof Error ? error.message : String(error);
    return fail(batonError("BATON_CONFIG_INVALID", `${key}: ${file} cannot be read`, { cause }));
  }
}
