// Labels on the page of `probity label` as a person does. See README.md beside this file.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import assert from "node:assert/strict";
import { DESK, PHONE, accessible, fits, launch, step } from "./browser.mjs";

const { values: options } = parseArgs({ options: { modules: { type: "string" }, probity: { type: "string" }, shots: { type: "string" } } });
const { browser, visit, shot } = await launch(options);
const folder = mkdtempSync(join(tmpdir(), "label-"));

const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> \u202eevil\u0007 </div></main>`;
const candidate = (id, text) => ({ id, text });
const sample = (id, context) => ({
  id, context, instruction: "Say it in one sentence.",
  candidates: [candidate("secret-model", `${HOSTILE} of ${id}`), candidate("other-model", "The council replaces two ferries by one. ".repeat(12))],
});
const CONTEXT = "The island council voted on Monday to replace its two diesel ferries with a single electric vessel. ".repeat(20);
writeFileSync(join(folder, "samples.jsonl"), Array.from({ length: 8 }, (_, k) => JSON.stringify(sample(`s${k}`, `${HOSTILE}\n\n${CONTEXT}`))).join("\n"));
// Lines, and a word without any place to break.
writeFileSync(join(folder, "long.jsonl"), JSON.stringify(sample("long", "x".repeat(500_000) + CONTEXT.repeat(270))));

const children = [];
/** The command, with its page's address and what it has kept. */
async function label(name, ...more) {
  const out = join(folder, `${name}.jsonl`);
  const child = spawn(resolve(options.probity), ["label", "--out", out, ...more], { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
  children.push(child);
  const [address] = await once(createInterface(child.stdout), "line");
  const origin = new URL(address).origin;
  return {
    open: (more = {}) => visit(address, { may: (asked) => asked.startsWith(origin + "/") || asked === "data:,", ready: "#asked:not([hidden]), #finished:not([hidden])", ...more }),
    rows: () => readFileSync(out, "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line)),
    end: async () => { child.kill("SIGINT"); if (child.exitCode === null) await once(child, "exit"); return child.exitCode; },
  };
}

const done = (page, count) => page.waitForFunction((count) => document.querySelector("#count").textContent.startsWith(`${count} of `), count);
/** Until the page takes an answer: what comes at once nobody has read. */
const read = (page) => page.waitForTimeout(450);
async function press(page, key, count) {
  await read(page);
  await page.keyboard.press(key);
  await done(page, count);
}

try {
  await step("label: pairs by keys", async () => {
    const server = await label("pairs", "--data", "samples.jsonl", "--attribute", "flow");
    const { page, silent, close } = await server.open();
    assert.equal(await page.locator("h1:visible").textContent(), "Which is better in flow?");
    const all = await page.content();
    for (const secret of ["secret-model", "other-model"]) assert.ok(!all.includes(secret), secret);
    assert.ok((await page.locator("#context").textContent()).includes(`onerror="window.pwned=1"`));
    assert.ok((await page.locator("#context").textContent()).includes("\\u{202e}evil\\u{7}"));
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    const left = (await page.locator("#text-1").textContent()).startsWith("<img");
    await press(page, "1", 1);
    assert.equal(server.rows()[0].preferred, left ? "secret-model" : "other-model");
    assert.ok(server.rows()[0].seconds >= 0.4, "it took a while");
    assert.match(await page.locator("#said").textContent(), /^Saved\. Task 2 of 8/);
    // Pressed twice, and held down: one answer each.
    await read(page);
    await page.keyboard.press("t");
    await done(page, 2);
    await page.keyboard.press("t");
    await page.keyboard.down("0");
    for (let k = 0; k < 5; k++) await page.keyboard.down("0");
    await page.waitForTimeout(600);
    for (let k = 0; k < 5; k++) await page.keyboard.down("0");
    await page.keyboard.up("0");
    await page.waitForTimeout(200);
    assert.equal(server.rows().length, 2, "the second press was for the task before");
    await press(page, "ArrowLeft", 3);
    await press(page, "b", 4);
    await press(page, "s", 5);
    const preferred = server.rows().map((row) => row.preferred ?? row.skipped);
    assert.deepEqual([preferred[1], preferred[4]], ["tie", true]);
    // Taken back, and answered otherwise.
    await press(page, "u", 4);
    await press(page, "Backspace", 3);
    assert.deepEqual(server.rows().slice(5).map((row) => row.withdrawn), [true, true]);
    await press(page, "2", 4);
    await page.keyboard.press("Control+1");
    await page.keyboard.press("?");
    assert.ok(await page.locator("dialog").isVisible());
    await read(page);
    await page.keyboard.press("1");
    await page.keyboard.press("Escape");
    assert.ok(!(await page.locator("dialog").isVisible()));
    assert.equal(server.rows().length, 8, "an open dialog and a key with Control answer nothing");
    for (const count of [5, 6, 7, 8]) await press(page, "a", count);
    assert.equal(await page.locator("h1:visible").textContent(), "All 8 tasks are done.");
    assert.ok(!(await page.locator("#choices").isVisible()) && !(await page.locator("#skip").isVisible()));
    await press(page, "u", 7);
    assert.ok(await page.locator("#asked").isVisible());
    await silent();
    await close();
    assert.equal(await server.end(), 0);
  });

  await step("label: by the mouse, in two windows, and after the end of the command", async () => {
    const server = await label("mouse", "--data", "samples.jsonl");
    const [first, second] = [await server.open(), await server.open()];
    assert.equal(await first.page.locator("h1:visible").textContent(), "Which is better?");
    await read(first.page);
    await first.page.getByRole("button", { name: "Text 2 is better" }).click();
    await done(first.page, 1);
    assert.equal(await first.page.evaluate(() => document.activeElement.id), "question", "focus is not lost");
    await read(first.page);
    await first.page.getByRole("button", { name: "Undo" }).click();
    await done(first.page, 0);
    assert.equal(await first.page.evaluate(() => document.activeElement.id), "question", "nor where there is nothing more to take back");
    await press(first.page, "1", 1);
    await first.silent();
    // The other window still shows the task that is labelled.
    await read(second.page);
    await second.page.getByRole("button", { name: "Neither is better" }).click();
    await done(second.page, 1);
    assert.match(await second.page.locator("#said").textContent(), /^Ignored: /);
    assert.equal(server.rows().length, 3);
    await read(second.page);
    await second.page.getByRole("button", { name: "Skip" }).click();
    await done(second.page, 2);
    await second.page.getByRole("button", { name: "Skip" }).focus();
    await read(second.page);
    for (let k = 0; k < 8; k++, await second.page.waitForTimeout(100)) await second.page.keyboard.down("Enter");
    await second.page.keyboard.up("Enter");
    await done(second.page, 3);
    await second.page.getByRole("button", { name: "Undo" }).click({ clickCount: 2 });
    await done(second.page, 2);
    // Single keys can be turned off.
    await second.page.getByRole("button", { name: "Keys" }).click();
    await second.page.getByLabel("Enable keys").uncheck();
    await second.page.getByRole("button", { name: "Close" }).click();
    await read(second.page);
    await second.page.keyboard.press("1");
    await second.page.waitForTimeout(200);
    assert.equal(server.rows().length, 6);
    assert.equal(await server.end(), 0);
    await read(first.page);
    await first.page.getByRole("button", { name: "Text 1 is better" }).click();
    await first.page.getByRole("alert").waitFor();
    assert.match(await first.page.getByRole("alert").textContent(), /does not respond; nothing was saved/);
    await first.close();
    await second.close();
  });

  await step("label: scores, and a context of a megabyte", async () => {
    const server = await label("scores", "--data", "long.jsonl", "--scale", "1..10", "--attribute", "flow");
    const began = performance.now();
    const { page, silent, close } = await server.open();
    assert.equal(await page.locator("h1:visible").textContent(), "How good is it in flow?");
    assert.ok((await page.locator("#context").textContent()).length > 1_000_000);
    await fits(page);
    await press(page, "0", 1);
    await press(page, "7", 2);
    console.log(`    two answers to texts of a megabyte: ${Math.round(performance.now() - began)} ms`);
    assert.ok(performance.now() - began < 30_000);
    assert.deepEqual(server.rows().map((row) => row.score), [10, 7]);
    await silent();
    await close();
    await server.end();
  });

  await step("label: nothing against WCAG 2 A and AA", async () => {
    const [pairs, scores] = [await label("a", "--data", "samples.jsonl"), await label("b", "--data", "samples.jsonl", "--scale", "0..5", "--limit", "1")];
    for (const [size, viewport] of [["desk", DESK], ["phone", PHONE]]) {
      for (const colorScheme of ["light", "dark"]) {
        for (const [name, server] of [["pair", pairs], ["score", scores]]) {
          const { page, close } = await server.open({ viewport, colorScheme, bypassCSP: true });
          await fits(page);
          await shot(page, `label-${name}-${size}-${colorScheme}`);
          await accessible(page, `${name} ${size} ${colorScheme}`);
          if (name === "score") await press(page, "3", 1);
          if (name === "score") await accessible(page, `done ${size} ${colorScheme}`);
          await shot(page, `label-${name}-${size}-${colorScheme}-next`);
          if (name === "score") await press(page, "u", 0);
          await page.keyboard.press("?");
          await accessible(page, `keys ${size} ${colorScheme}`);
          await shot(page, `label-${name}-${size}-${colorScheme}-keys`);
          await close();
        }
      }
    }
    await pairs.end();
    await scores.end();
  });
} finally {
  await browser.close();
  children.forEach((child) => child.kill("SIGKILL"));
  rmSync(folder, { recursive: true });
}
