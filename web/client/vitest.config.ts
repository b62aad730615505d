import { defineConfig } from "vitest/config";

// The tests in e2e/ are programs of their own: they need a browser.
export default defineConfig({ test: { include: ["src/**/*.test.ts", "test/**/*.test.ts"] } });
