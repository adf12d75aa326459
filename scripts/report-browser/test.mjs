// Opens reports in Chromium and does what a reader does. See README.md beside this file.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import assert from "node:assert/strict";
import { DESK, PHONE, accessible, fits, launch, step } from "./browser.mjs";

const { values: options } = parseArgs({
  options: {
    modules: { type: "string" }, real: { type: "string" }, runs: { type: "string" }, hostile: { type: "string" }, large: { type: "string" }, shots: { type: "string" },
  },
});
const { browser, visit, shot } = await launch(options);

/** A report: nothing is asked for but the file itself. */
function open(file, { hash = "", ...more } = {}) {
  const url = pathToFileURL(resolve(file)).href;
  return visit(url + hash, { may: (asked) => asked.split("#")[0] === url, ready: "html[data-ready]", ...more });
}

/** A field of the tools above the list, by its label. */
const field = (page, label) => page.getByRole("search").getByLabel(label);
const rows = (page) => page.locator(".list tbody tr");
const counted = async (page) => Number((await page.locator(".status[role=status]").first().textContent()).split(" of ")[0].replaceAll(",", ""));

async function reader(file, name) {
  for (const [size, viewport] of [["desk", DESK], ["phone", PHONE]]) {
    for (const colorScheme of ["light", "dark"]) {
      await step(`${name}: ${size}, ${colorScheme}`, async () => {
        const { page, silent, close } = await open(file, { viewport, colorScheme });
        await fits(page);
        await shot(page, `${name}-${size}-${colorScheme}`);
        await shot(page, `${name}-${size}-${colorScheme}-full`, true);
        const all = await counted(page);
        assert.ok(all > 0);
        await field(page, "Sort by").selectOption("id");
        const first = await rows(page).first().locator("button").textContent();
        await field(page, "Order").selectOption("-1");
        if (all > 1) assert.notEqual(await rows(page).first().locator("button").textContent(), first);
        await page.locator("#samples").scrollIntoViewIfNeeded();
        await shot(page, `${name}-${size}-${colorScheme}-samples`);
        await rows(page).first().locator("button").click();
        await page.locator("dialog .text").first().waitFor();
        await page.locator("dialog summary").first().click();
        await page.locator("dialog details[open] .text").first().waitFor();
        await page.locator("dialog details[open] summary").first().scrollIntoViewIfNeeded();
        await shot(page, `${name}-${size}-${colorScheme}-prompt`);
        await page.locator("dialog .inside").evaluate((inside) => inside.scrollTo(0, 0));
        await shot(page, `${name}-${size}-${colorScheme}-open`);
        await silent();
        await page.getByRole("button", { name: "Close" }).click();
        await silent();
        await close();
      });
    }
  }
  await step(`${name}: nothing against WCAG 2 A and AA`, async () => {
    for (const viewport of [DESK, PHONE]) {
      for (const colorScheme of ["light", "dark"]) {
        const { page, close } = await open(file, { viewport, colorScheme, bypassCSP: true });
        await accessible(page, `${name} ${viewport.width} ${colorScheme}`);
        await rows(page).first().locator("button").click();
        await page.locator("dialog .text").first().waitFor();
        await page.locator("dialog summary").first().click();
        await accessible(page, `${name}, an open sample, ${viewport.width} ${colorScheme}`);
        await close();
      }
    }
  });
  await step(`${name}: search, filters and the theme`, async () => {
    const { page, silent, close } = await open(file);
    const all = await counted(page);
    await field(page, "Search").fill("no such words anywhere 17");
    await page.waitForFunction(() => document.querySelector(".status").textContent.startsWith("0 of"));
    const everything = () => page.waitForFunction((n) => document.querySelector(".status").textContent.startsWith(`${n} of`), all.toLocaleString("en"));
    await field(page, "Search").fill("");
    await everything();
    // The words of one text, which the list shows only the beginning of.
    await rows(page).first().locator("button").click();
    const words = (await page.locator("dialog .text").first().textContent()).trim().slice(-40).trim();
    await page.keyboard.press("Escape");
    await field(page, "Search").fill(words);
    await page.waitForFunction((n) => !document.querySelector(".status").textContent.startsWith(`${n} of`), all.toLocaleString("en"));
    assert.ok((await counted(page)) >= 1, words);
    await field(page, "Search").fill("");
    await everything();
    const mass = field(page, "Label mass below");
    if (await mass.count()) {
      await mass.fill("0");
      assert.equal(await counted(page), 0);
      await mass.fill("1.1");
      assert.ok((await counted(page)) > 0);
      await mass.fill("");
    }
    const gold = field(page, "Gold");
    if (await gold.count()) {
      await gold.selectOption("against");
      const against = await counted(page);
      await gold.selectOption("with");
      assert.ok(against + (await counted(page)) <= all);
      await gold.selectOption("");
    }
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.locator("#theme").click();
    await page.locator("#theme").click();
    assert.notEqual(await ground(), light);
    await silent();
    await close();
  });
  await step(`${name}: a sample's own address, heads that sort, / for search`, async () => {
    const { page, silent, close } = await open(file);
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "by-query");
    await field(page, "Search").blur();
    const head = page.locator(".list thead th").first();
    await head.locator("button").click();
    assert.equal(await head.getAttribute("aria-sort"), "ascending");
    const first = await rows(page).first().locator("button").textContent();
    await head.locator("button").click();
    assert.equal(await head.getAttribute("aria-sort"), "descending");
    if ((await counted(page)) > 1) assert.notEqual(await rows(page).first().locator("button").textContent(), first);
    await rows(page).first().locator("button").click();
    await page.locator("dialog .text").first().waitFor();
    const [address, title] = [page.url(), await page.locator("#sample-title").textContent()];
    assert.ok(address.includes("#sample/"), address);
    await page.keyboard.press("Escape");
    // The dialog tells that it was closed a moment later.
    await page.waitForFunction(() => location.hash === "#samples");
    await silent();
    await close();
    const again = await open(file, { hash: address.slice(address.indexOf("#")) });
    await again.page.locator("dialog .text").first().waitFor();
    assert.equal(await again.page.locator("#sample-title").textContent(), title);
    await again.silent();
    await again.close();
  });
  await step(`${name}: by keyboard alone`, async () => {
    const { page, silent, close } = await open(file);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    await field(page, "Search").focus();
    for (let k = 0; k < 40 && !(await page.evaluate(() => document.activeElement.matches(".list tbody button"))); k++) await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.activeElement.matches(".list tbody button")), "a sample is reached");
    await page.keyboard.press("Enter");
    await page.locator("dialog .text").first().waitFor();
    for (let k = 0; k < 40 && !(await page.evaluate(() => document.activeElement.matches("summary"))); k++) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator("dialog details[open] .text").first().waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("dialog[open]").count(), 0);
    assert.ok(await page.evaluate(() => document.activeElement.matches(".list tbody button")), "focus comes back");
    await silent();
    await close();
  });
  await step(`${name}: print`, async () => {
    const { page, silent, close } = await open(file, { colorScheme: "dark" });
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(255, 255, 255)");
    assert.equal(await page.locator("#explorer").isVisible(), false);
    await page.setViewportSize({ width: 794, height: 1123 });
    await shot(page, `${name}-print`, true);
    const pdf = await page.pdf({ format: "A4", path: options.shots ? `${options.shots}/${name}.pdf` : undefined });
    assert.ok(pdf.length > 10_000);
    await silent();
    await close();
  });
}

async function hostile(file) {
  await step("hostile: nothing runs, nothing leaves", async () => {
    const { page, silent, close } = await open(file);
    const clean = async () => {
      assert.equal(await page.evaluate(() => window.pwned), undefined);
      const odd = await page.evaluate(() => [...document.querySelectorAll("body iframe, body img, body object, body embed, body base, body link, body a[href^='javascript'], body form[action], body [onload], body [onerror], body [onmouseover]")].map((e) => e.outerHTML));
      assert.deepEqual(odd, []);
      assert.equal(await page.evaluate(() => document.querySelectorAll("style").length), 1);
      const shown = await page.evaluate(() => document.body.innerText);
      assert.doesNotMatch(shown, /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069\ufeff]/u);
    };
    await clean();
    await shot(page, "hostile-full", true);
    const count = Math.min(await counted(page), 6);
    for (let k = 0; k < count; k++) {
      await rows(page).nth(k).locator("button").click();
      await page.locator("dialog .text").first().waitFor();
      for (const summary of (await page.locator("dialog summary").all()).slice(0, 3)) await summary.click();
      await clean();
      if (k === 0) await shot(page, "hostile-open");
      await page.keyboard.press("Escape");
    }
    await field(page, "Search").fill("<script>");
    await page.waitForTimeout(500);
    await clean();
    await silent();
    await close();
  });
}

async function large(file) {
  await step("large: usable", async () => {
    const began = performance.now();
    const { page, silent, close } = await open(file);
    const ready = performance.now() - began;
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
    const time = async (work) => { const from = performance.now(); await work(); return Math.round(performance.now() - from); };
    const all = await counted(page);
    const search = await time(async () => {
      await field(page, "Search").fill("no such words anywhere 17");
      await page.waitForFunction(() => document.querySelector(".status").textContent.startsWith("0 of"), null, { timeout: 60_000 });
    });
    await field(page, "Search").fill("");
    await page.waitForFunction(() => !document.querySelector(".status").textContent.startsWith("0 of"));
    const again = await time(async () => {
      await field(page, "Search").fill("no such words anywhere 18");
      await page.waitForFunction(() => document.querySelector(".status").textContent.startsWith("0 of"), null, { timeout: 60_000 });
    });
    await field(page, "Search").fill("");
    await page.waitForFunction(() => !document.querySelector(".status").textContent.startsWith("0 of"));
    const sort = await time(() => field(page, "Sort by").selectOption("mass"));
    const opened = await time(async () => {
      await rows(page).nth(20).locator("button").click();
      await page.locator("dialog .text").first().waitFor();
    });
    console.log(`    ${all} samples: first paint ${Math.round(paint)} ms, ready ${Math.round(ready)} ms, first search ${search} ms, next search ${again} ms, sort ${sort} ms, open ${opened} ms`);
    assert.ok(ready < 30_000 && search < 60_000 && again < 10_000 && sort < 5_000 && opened < 10_000);
    await silent();
    await close();
  });
}

try {
  if (options.real) await reader(options.real, "report");
  if (options.runs) await reader(options.runs, "runs");
  if (options.hostile) await hostile(options.hostile);
  if (options.large) await large(options.large);
} finally {
  await browser.close();
}
