export { type HttpEdgeLimits, type HttpEdgeOptions, httpEdgeDefaults } from "./options.ts";
export { type FrontendServer, serveFrontend } from "./serve-frontend.ts";
