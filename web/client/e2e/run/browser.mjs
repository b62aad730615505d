// Chromium through puppeteer-core: raw enough to freeze, stop and kill. Firefox through the same, over WebDriver BiDi.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import puppeteer from "puppeteer-core";

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--noerrdialogs", "--hide-crash-restore-bubble",
];

export function chromiumPath() {
  const named = process.env.CHROMIUM;
  const found = [named, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
  if (!found) throw new Error("Chromium was not found. Install it (apt-get install chromium) or name it in CHROMIUM.");
  return found;
}

/** Null: it is not installed. */
export function firefoxPath() {
  return [process.env.FIREFOX, "/usr/bin/firefox-esr", "/usr/bin/firefox"].find((path) => path && existsSync(path)) ?? null;
}

/** A profile that outlives its browser. */
export class Profile {
  browser = null;

  constructor(kind = "chromium") {
    this.kind = kind;
    this.folder = mkdtempSync(join(tmpdir(), `piton-${kind}-`));
  }

  async open() {
    if (this.kind === "firefox") {
      this.browser = await puppeteer.launch({
        browser: "firefox", executablePath: firefoxPath(), userDataDir: this.folder, headless: true, timeout: 60_000, protocolTimeout: 60_000,
      });
      return this.browser;
    }
    // Chromium leaves a link to the killed browser behind.
    for (const name of ["SingletonLock", "SingletonSocket", "SingletonCookie"]) rmSync(join(this.folder, name), { force: true });
    this.browser = await puppeteer.launch({
      executablePath: chromiumPath(), userDataDir: this.folder, headless: true, args: FLAGS, timeout: 60_000, protocolTimeout: 60_000,
    });
    return this.browser;
  }

  /** SIGKILL of the browser and all of its processes, as a phone's system does. */
  async kill() {
    const { pid } = this.browser.process();
    const gone = new Promise((resolve) => this.browser.process().once("exit", resolve));
    const children = descendants(pid);
    process.kill(pid, "SIGKILL");
    for (const child of children) trySignal(child, "SIGKILL");
    await gone;
    await this.browser.disconnect().catch(() => undefined);
  }

  async remove() {
    await this.browser?.close().catch(() => undefined);
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

/** Signals a process that may have ended meanwhile. */
function trySignal(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

function descendants(pid) {
  const lines = execFileSync("ps", ["-eo", "pid=,ppid="], { encoding: "utf8" }).trim().split("\n").map((line) => line.trim().split(/\s+/).map(Number));
  const found = [];
  for (let parents = [pid]; parents.length > 0; ) {
    parents = lines.filter(([, parent]) => parents.includes(parent)).map(([child]) => child);
    found.push(...parents);
  }
  return found;
}

/** The processes that draw the pages of a browser. */
async function renderersOf(browser) {
  const session = await browser.target().createCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  return processInfo.filter((info) => info.type === "renderer").map((info) => info.id);
}

/** Sends a signal to all pages of a browser: which process draws which page is not known for sure. */
export async function signalPages(browser, signal) {
  for (const pid of await renderersOf(browser)) trySignal(pid, signal);
}

/** SIGKILL of a page, and of all others of its browser; ends when the browser has seen this page die. */
export async function killPage(page) {
  let isDead = false;
  page.once("error", () => {
    isDead = true;
  });
  // A process that was just made for it may be missing in the list: asked again until it is gone.
  for (let attempt = 0; attempt < 10 && !isDead; attempt++) {
    await signalPages(page.browser(), "SIGKILL");
    for (const end = Date.now() + 2_000; !isDead && Date.now() < end; ) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (!isDead) throw new Error("the page does not die");
}

export async function openPage(browser, url) {
  for (let attempt = 1; ; attempt++) {
    const page = await browser.newPage();
    // A page that crashes is what these tests are about.
    page.on("error", () => undefined);
    const crashed = new Promise((resolve) => page.once("error", () => resolve("crashed")));
    const opened = page.goto(url, { timeout: 10_000 }).then(() => "opened", (error) => error);
    const how = await Promise.race([opened, crashed]);
    if (how === "opened") return { page };
    // Chromium may give it a process that the test before had killed: it crashes, or never loads.
    await page.close({ runBeforeUnload: false }).catch(() => undefined);
    if (attempt === 3) throw new Error(`${url} does not open: ${how}`);
    console.log(`# opened again: ${how}`);
  }
}

export async function waitFor(page, isSo, ...args) {
  if (page.browser().protocol !== "webDriverBiDi") return void (await page.waitForFunction(isSo, { timeout: 20_000, polling: 30 }, ...args));
  // The page's policy does not let the driver make a function there.
  for (const end = Date.now() + 20_000; !(await page.evaluate(isSo, ...args)); await new Promise((resolve) => setTimeout(resolve, 30))) {
    if (Date.now() > end) throw new Error(`it did not happen within 20 s: ${isSo}`);
  }
}

/** Presses a button of the banner as a user does. */
export async function press(page, label) {
  await waitFor(page, (wanted) => {
    const buttons = [...(document.querySelector("piton-resume-banner").shadowRoot?.querySelectorAll("button") ?? [])];
    return buttons.some((button) => button.textContent === wanted);
  }, label);
  const button = await page.evaluateHandle((wanted) => {
    const buttons = [...document.querySelector("piton-resume-banner").shadowRoot.querySelectorAll("button")];
    return buttons.find((found) => found.textContent === wanted);
  }, label);
  await button.click();
}
