// Chromium, and what every page of ours has to keep.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

export const DESK = { width: 1280, height: 900 };
export const PHONE = { width: 390, height: 844 };

let axe;

/** A browser with the packages of a folder; pictures go to another, where one is named. */
export async function launch({ modules, shots }) {
  const require = createRequire(pathToFileURL(resolve(modules) + "/"));
  const { chromium } = require("playwright-core");
  axe = require.resolve("axe-core/axe.min.js");
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  if (shots) mkdirSync(shots, { recursive: true });

  /** A page that must stay silent: no error, no warning, no dialog, no request but those that it may make, no violation of its policy. */
  async function visit(url, { may, ready, viewport = DESK, colorScheme = "light", bypassCSP = false }) {
    const context = await browser.newContext({ viewport, colorScheme, bypassCSP, deviceScaleFactor: viewport === PHONE ? 2 : 1, hasTouch: viewport === PHONE });
    const page = await context.newPage();
    const noise = [];
    page.on("console", (message) => noise.push(`console ${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => noise.push(`error: ${error.message}`));
    page.on("request", (request) => { if (!may(request.url())) noise.push(`request: ${request.url()}`); });
    page.on("dialog", (dialog) => { noise.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
    page.on("popup", () => noise.push("popup"));
    await page.addInitScript(() => {
      window.violations = [];
      document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
    });
    await page.goto(url);
    await page.waitForSelector(ready, { timeout: 60_000 });
    const silent = async () => {
      assert.deepEqual(noise, []);
      assert.deepEqual(await page.evaluate(() => window.violations), []);
    };
    return { page, silent, close: () => context.close() };
  }

  async function shot(page, name, full = false) {
    if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: full });
  }

  return { browser, visit, shot };
}

export async function accessible(page, what) {
  await page.addScriptTag({ path: axe });
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  const told = found.violations.map((v) => `${v.id}: ${v.help}\n    ${v.nodes.slice(0, 4).map((n) => n.html.slice(0, 160) + "  " + (n.any[0]?.message ?? "")).join("\n    ")}`);
  assert.deepEqual(told, [], what);
}

/** No part of the page is wider than the window. */
export async function fits(page) {
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(inner <= outer, `the page is ${inner} wide in a window of ${outer}`);
}

export async function step(name, work) {
  const began = performance.now();
  await work();
  console.log(`ok  ${name}  (${((performance.now() - began) / 1000).toFixed(1)} s)`);
}
