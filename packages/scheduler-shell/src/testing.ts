export { FakeFrontend } from "./testing/fake-frontend.ts";
export { type FakeWorker, FakeWorkers } from "./testing/fake-workers.ts";
