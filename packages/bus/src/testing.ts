export {
  type NatsServer,
  type NatsServerOptions,
  startNatsServer,
} from "./testing/nats-server.ts";
