export {
  type ClaimAnswer,
  HandleBroker,
  type HandleClaim,
  type HandleState,
} from "./handle-broker.ts";
export { type Transfer, TransferLedger } from "./transfer-ledger.ts";
