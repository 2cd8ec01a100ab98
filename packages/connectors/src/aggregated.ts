import { fail } from "@baton/kit";
import type { Connector } from "./connector.ts";

const unchanged = { remove: [], append: [] };

/** One engine prefills and decodes; there is no handle. */
export const aggregated: Connector = {
  name: "none",
  description: "no transfer: one engine prefills and decodes",
  legOrder: "none",
  handleLeaseMs: 0,
  handleMember: "",
  prefillLeg: () => unchanged,
  decodeLeg: () => unchanged,
  abandonLeg: () => unchanged,
  checkAnswer: () => fail("this connector has no handles"),
};
