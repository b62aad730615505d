// Pages of a real Chromium, signed in, which fail the test on any error that the page reports.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const CHROMIUM = process.env["CHROMIUM"] ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => existsSync(path));
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"];
export const PHONE = { width: 390, height: 844 };
export const DESKTOP = { width: 1440, height: 900 };

export async function launch() {
  if (!CHROMIUM) throw new Error("There is no Chromium: scripts/setup installs it, or set CHROMIUM");
  return await chromium.launch({ executablePath: CHROMIUM, args: ARGS });
}

/** What Chromium prints for a request that the server refused is no error of the page. */
const EXPECTED = /Failed to load resource|net::ERR_|bad HTTP response code|WebSocket connection to/;

export class Pages {
  #contexts = [];

  constructor(browser, address, token) {
    Object.assign(this, { browser, address, token });
  }

  async context(options = {}) {
    const { viewport = DESKTOP, colorScheme = "light", isSignedIn = true, ...rest } = options;
    const context = await this.browser.newContext({ viewport, colorScheme, hasTouch: viewport.width < 600, reducedMotion: "reduce", serviceWorkers: "block", locale: "en-GB", ...rest });
    context.setDefaultTimeout(10_000);
    if (isSignedIn) await context.addInitScript((token) => { if (!sessionStorage.getItem("seeded")) { sessionStorage.setItem("seeded", "1"); localStorage.setItem("piton.token", token); } }, this.token);
    this.#contexts.push(context);
    return context;
  }

  /** `errors` collects what the page reports; `violations` what its policy refused. */
  async open(path = "#/", options = {}) {
    const context = options.context ?? (await this.context(options));
    const page = await context.newPage();
    page.errors = [];
    page.on("pageerror", (error) => page.errors.push(String(error.stack ?? error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !EXPECTED.test(message.text())) page.errors.push(message.text());
    });
    await page.goto(`${options.address ?? this.address}/${path}`);
    return page;
  }

  async closeAll() {
    for (const context of this.#contexts.splice(0)) {
      for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
    }
  }
}
