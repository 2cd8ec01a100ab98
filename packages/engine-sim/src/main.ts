#!/usr/bin/env node
import { runEngineSim } from "./run-engine-sim.ts";

process.exit(await runEngineSim(process.argv.slice(2)));
