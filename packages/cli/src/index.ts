export { type Laptop, type LaptopOptions, openLaptop } from "./laptop/laptop.ts";
export { type SimEngine, startSimEngines } from "./laptop/sim-engines.ts";
export { runCli } from "./run-cli.ts";
