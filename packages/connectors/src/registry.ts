import { aggregated } from "./aggregated.ts";
import type { Connector } from "./connector.ts";
import { nixlPull } from "./nixl-pull.ts";

const connectors: readonly Connector[] = [nixlPull, aggregated];

export const connectorNames: readonly string[] = connectors.map((each) => each.name);

export function connectorNamed(name: string): Connector | undefined {
  return connectors.find((each) => each.name === name);
}
