export { DecayedSum } from "./decayed-sum.ts";
export { FaultGate } from "./fault-gate.ts";
export {
  Fleet,
  type FleetChange,
  type Probe,
  type WorkerConfig,
  type WorkerState,
  type WorkerView,
} from "./fleet.ts";
export { LeaseLedger, type LoadLease } from "./lease-ledger.ts";
export { parsePrometheus, type Sample } from "./prometheus-text.ts";
export { type EngineSignals, noSignals, readVllmSignals, requiredSignals } from "./vllm-signals.ts";
