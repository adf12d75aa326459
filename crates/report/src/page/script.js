"use strict";
// Data reach the page as text nodes only: nothing here makes markup from a string.
(() => {
  const PAGE = 50;
  const KEPT = 6;
  const $ = (id) => document.getElementById(id);

  // ---- elements -----------------------------------------------------------------------------------------------------------------------------

  const HOSTILE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufffe\uffff]|\udb40[\udc00-\udc7f]/gu;

  /** An element with properties, and children that are elements or texts. */
  function make(name, properties = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "class") element.className = value;
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value === true) element.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
    }
    for (const child of children.flat()) {
      if (child instanceof Node) element.append(child);
      else if (child !== null && child !== undefined) write(element, String(child));
    }
    return element;
  }

  /** Text with what a reader could not see made visible, and what was searched for marked. */
  function write(element, text, needle = "") {
    let from = 0;
    for (const found of text.matchAll(HOSTILE)) {
      marked(element, text.slice(from, found.index), needle);
      const code = "U+" + found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      const shown = document.createElement("span");
      shown.className = "hostile";
      shown.textContent = code;
      element.append(shown);
      from = found.index + found[0].length;
    }
    marked(element, text.slice(from), needle);
  }

  function marked(element, text, needle) {
    if (text === "") return;
    const lower = needle ? text.toLowerCase() : "";
    // Lower case may change a text's length; then places would not match.
    if (!needle || lower.length !== text.length) { element.append(text); return; }
    let from = 0;
    for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
      element.append(text.slice(from, at));
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + needle.length);
      element.append(mark);
      from = at + needle.length;
    }
    element.append(text.slice(from));
  }

  const nouns = () => index.noun[0].toUpperCase() + index.noun.slice(1) + "s";
  const visible = (text) => String(text).replace(HOSTILE, (c) => "U+" + c.codePointAt(0).toString(16).toUpperCase());
  const number = (value, decimals = 3) => (value === null || value === undefined ? "–" : Number(value).toFixed(decimals).replace("-", "−"));
  const whole = (value) => Number(value).toLocaleString("en");

  // ---- theme --------------------------------------------------------------------------------------------------------------------------------

  const themes = ["system", "light", "dark"];
  let theme = 0;
  const toggle = $("theme");
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    if (theme === 0) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = themes[theme];
    toggle.textContent = "Theme: " + themes[theme];
  });

  // ---- data ---------------------------------------------------------------------------------------------------------------------------------

  async function unpack(id) {
    const packed = atob($(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const kept = new Map();
  /** A block, from memory where it was opened lately. */
  function block(id) {
    const known = kept.get(id);
    const promise = known || unpack(id);
    kept.delete(id);
    kept.set(id, promise);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return promise;
  }

  let index;
  let columns;
  let count = 0;

  const blockOf = (sample) => {
    let low = 0;
    let high = index.first.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (index.first[middle] <= sample) low = middle;
      else high = middle - 1;
    }
    return low;
  };

  // ---- search over texts ----------------------------------------------------------------------------------------------------------------------

  const haystacks = [];
  function flat(value, into) {
    if (typeof value === "string") into.push(value);
    else if (Array.isArray(value)) value.forEach((part) => flat(part, into));
    else if (value && typeof value === "object") Object.values(value).forEach((part) => flat(part, into));
    return into;
  }

  let searching = 0;
  let foundFor = "";
  let found = null;

  /** Which samples hold the words; block by block, so that the page stays awake. A newer search ends an older one. */
  async function search(needle) {
    const mine = ++searching;
    if (needle === "") { found = null; foundFor = ""; return true; }
    const hits = new Uint8Array(count);
    for (let number = 0; number < index.first.length; number++) {
      if (!haystacks[number]) {
        const texts = await unpack("t" + number);
        haystacks[number] = texts.map((text) => flat(text, []).join("\n").toLowerCase());
        if (number % 8 === 7) {
          status(`Searching, ${Math.round((100 * number) / index.first.length)}% …`);
          await new Promise((resolve) => setTimeout(resolve));
        }
      }
      if (mine !== searching) return false;
      const first = index.first[number];
      haystacks[number].forEach((text, offset) => { if (text.includes(needle)) hits[first + offset] = 1; });
    }
    for (let sample = 0; sample < count; sample++) if (columns.id[sample].toLowerCase().includes(needle)) hits[sample] = 1;
    found = hits;
    foundFor = needle;
    return true;
  }

  // ---- the list -------------------------------------------------------------------------------------------------------------------------------

  const has = (name) => columns[name].some((value) => value !== null);
  let list = [];
  let page = 0;
  let controls = {};

  function control(name, label, element, grow = false) {
    element.addEventListener(element.tagName === "SELECT" ? "change" : "input", () => changed());
    element.id = "by-" + name;
    return make("div", { class: grow ? "grow" : "" }, make("label", { for: element.id }, label), element);
  }

  const select = (options) => make("select", {}, options.map(([value, text]) => make("option", { value }, text)));

  function tools() {
    const union = (lists) => [...new Set(lists.flat())].sort();
    const used = (name, bits) => union(index[name].map((names, run) => names.filter((_, at) =>
      columns.run.some((r, sample) => r === run && (columns[bits][sample] >>> Math.min(at, 31)) & 1))));
    const outcomes = used("outcomes", "outcomes");
    const attributes = used("attributes", "attributes");
    const form = make("form", { class: "tools", role: "search", "aria-label": nouns(), onsubmit: (event) => event.preventDefault() });
    const add = (name, label, element, grow) => { controls[name] = element; form.append(control(name, label, element, grow)); };
    add("query", "Search texts, outputs and ids (press /)", make("input", { type: "search", autocomplete: "off", spellcheck: "false" }), true);
    if (index.runs.length > 1) add("run", "Run", select([["", "all"], ...index.runs.map((name, at) => [at, name])]));
    if (outcomes.length > 1) add("outcome", "Outcome", select([["", "all"], ...outcomes.map((name) => [name, name])]));
    if (attributes.length > 1) add("attribute", "Attribute", select([["", "all"], ...attributes.map((name) => [name, name || "none"])]));
    if (has("rho") || has("preference")) add("gold", "Gold", select([["", "all"], ["against", "disagrees"], ["with", "agrees"]]));
    if (has("mass")) add("mass", "Label mass below", make("input", { type: "number", min: "0", max: "1", step: "any", inputmode: "decimal" }));
    const sorts = [["", "data order"], ["id", "id"]];
    if (has("mass")) sorts.push(["mass", "lowest label mass"]);
    if (has("gap")) sorts.push(["gap", "order gap"]);
    if (has("best")) sorts.push(["best", "best score"]);
    if (has("rho")) sorts.push(["rho", "correlation with gold"]);
    if (has("preference")) sorts.push(["preference", "agreement with human"]);
    add("sort", "Sort by", select(sorts));
    add("direction", "Order", select([["1", "ascending"], ["-1", "descending"]]));
    // Disagreements with people first.
    controls.sort.value = has("preference") ? "preference" : has("rho") ? "rho" : "";
    return form;
  }

  const value = (name) => (controls[name] ? controls[name].value : "");

  function passes(sample) {
    if (found && !found[sample]) return false;
    const run = columns.run[sample];
    if (value("run") !== "" && Number(value("run")) !== run) return false;
    const bit = (names, bits, name) => {
      const at = index[names][run].indexOf(name);
      return at >= 0 && ((columns[bits][sample] >>> Math.min(at, 31)) & 1) === 1;
    };
    if (value("outcome") !== "" && !bit("outcomes", "outcomes", value("outcome"))) return false;
    if (value("attribute") !== "" && !bit("attributes", "attributes", value("attribute"))) return false;
    const mass = columns.mass[sample];
    if (value("mass") !== "" && !(mass !== null && mass < Number(value("mass")))) return false;
    if (value("gold") !== "") {
      const rho = columns.rho[sample];
      const preference = columns.preference[sample];
      const against = (rho !== null && rho <= 0) || (preference !== null && preference < 0.5);
      const agrees = !against && ((rho !== null && rho > 0) || (preference !== null && preference > 0.5));
      if (value("gold") === "against" ? !against : !agrees) return false;
    }
    return true;
  }

  function refresh() {
    list = [];
    for (let sample = 0; sample < count; sample++) if (passes(sample)) list.push(sample);
    const by = value("sort");
    const sign = Number(value("direction"));
    const collator = new Intl.Collator("en", { numeric: true });
    if (by === "id") list.sort((a, b) => sign * collator.compare(columns.id[a], columns.id[b]) || a - b);
    else if (by !== "") {
      const column = columns[by];
      // What is missing comes last, whichever way.
      list.sort((a, b) => (column[a] === null) - (column[b] === null) || sign * (column[a] - column[b]) || a - b);
    } else if (sign < 0) list.reverse();
    page = 0;
    showOrder();
    draw();
  }

  let timer;
  function changed() {
    clearTimeout(timer);
    const needle = value("query").trim().toLowerCase();
    if (needle === foundFor && (needle === "") === (found === null)) { searching++; refresh(); return; }
    timer = setTimeout(async () => { if (await search(needle)) refresh(); }, 180);
  }

  const statusLine = make("p", { class: "status", role: "status" });
  const status = (text) => { statusLine.textContent = text; };
  const body = make("tbody");
  const pages = make("div", { class: "pages" });

  function outcomeNames(sample) {
    const names = index.outcomes[columns.run[sample]].filter((_, at) => (columns.outcomes[sample] >>> Math.min(at, 31)) & 1);
    return names.filter((name) => name !== "").join(", ") || "–";
  }

  let extras = [];
  function head() {
    extras = [["outcome", outcomeNames, false]];
    if (index.runs.length > 1) extras.unshift(["run", (s) => index.runs[columns.run[s]], false]);
    extras.push(["answers", (s) => whole(columns.answers[s]), true]);
    if (has("mass")) extras.push(["label mass", (s) => number(columns.mass[s]), true]);
    if (has("gap")) extras.push(["order gap", (s) => number(columns.gap[s]), true]);
    if (has("winner")) extras.push(["winner", (s) => columns.winner[s] ?? "–", false]);
    if (has("human")) extras.push(["human label", (s) => columns.human[s] ?? "–", false]);
    if (has("best")) extras.push(["best score", (s) => number(columns.best[s]), true]);
    if (has("rho")) extras.push(["ρ gold", (s) => number(columns.rho[s], 2), true]);
    if (has("preference")) extras.push(["with human", (s) => preferenceWord(columns.preference[s]), false]);
    // A head sorts by its column, and the other way when it is pressed again.
    const sorts = { [index.noun]: "id", "label mass": "mass", "order gap": "gap", "best score": "best", "ρ gold": "rho", "with human": "preference" };
    const cell = (name, className) => {
      const by = sorts[name];
      if (!by) return make("th", { scope: "col", class: className }, name);
      const press = () => {
        const same = value("sort") === by;
        controls.sort.value = by;
        controls.direction.value = same && value("direction") === "1" ? "-1" : "1";
        refresh();
      };
      const head = make("th", { scope: "col", class: className }, make("button", { type: "button", class: "sorts", onclick: press }, name));
      heads.push([head, by]);
      return head;
    };
    return make("thead", {}, make("tr", {}, cell(index.noun, "name"), cell("text", "start"), extras.map(([name, , numeric]) => cell(name, numeric ? "number" : ""))));
  }

  const heads = [];
  function showOrder() {
    for (const [head, by] of heads) {
      if (value("sort") === by) head.setAttribute("aria-sort", value("direction") === "1" ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    }
  }

  const preferenceWord = (share) => (share === null ? "–" : share > 0.5 ? "agrees" : share < 0.5 ? "disagrees" : "tied");

  function draw() {
    const last = Math.max(0, Math.ceil(list.length / PAGE) - 1);
    page = Math.min(Math.max(page, 0), last);
    const rows = list.slice(page * PAGE, (page + 1) * PAGE).map((sample) => {
      const open = make("button", { type: "button", onclick: () => show(sample) }, columns.id[sample]);
      const cells = extras.map(([name, text, numeric]) => {
        const shown = text(sample);
        const tone = shown === "disagrees" ? " bad" : shown === "agrees" ? " good" : "";
        return make("td", { class: "extra" + (numeric ? " number" : "") + tone, "data-name": name }, shown);
      });
      return make("tr", {}, make("th", { scope: "row", class: "name" }, make("bdi", {}, open)), make("td", { class: "start" }, make("bdi", {}, columns.start[sample])), cells);
    });
    body.replaceChildren(...rows);
    status(`${whole(list.length)} of ${whole(count)} ${index.noun}s`);
    const go = (text, to, off) => make("button", { type: "button", disabled: off, onclick: () => turn(to) }, text);
    pages.replaceChildren(go("Previous page", page - 1, page === 0), make("span", {}, `Page ${whole(page + 1)} of ${whole(last + 1)}`), go("Next page", page + 1, page === last));
    pages.hidden = last === 0;
  }

  function turn(to) {
    page = to;
    draw();
    $("samples").scrollIntoView();
    const first = body.querySelector("button");
    if (first) first.focus({ preventScroll: true });
  }

  // ---- one sample -----------------------------------------------------------------------------------------------------------------------------

  const title = make("h2", { id: "sample-title", tabindex: "-1" });
  const inside = make("div", { class: "inside", tabindex: "0", role: "region", "aria-label": "Sample" });
  let shown = -1;
  const step = (by) => {
    const at = list.indexOf(shown) + by;
    if (at >= 0 && at < list.length) show(list[at]);
  };
  const previous = make("button", { type: "button", onclick: () => step(-1) }, "Previous");
  const next = make("button", { type: "button", onclick: () => step(1) }, "Next");
  const close = make("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = make("dialog", { "aria-labelledby": "sample-title" }, make("div", { class: "sheet" }, make("header", {}, title, previous, next, close), inside));

  /** The place of a sample in the address: the same page opens on it again. */
  const placeOf = (sample) => `#sample/${columns.run[sample]}/${encodeURIComponent(columns.id[sample])}`;

  /** Opens the sample that the address names. */
  function follow() {
    const parts = location.hash.match(/^#sample\/(\d+)\/(.*)$/);
    if (!parts) return;
    let id;
    try { id = decodeURIComponent(parts[2]); } catch { return; }
    const sample = columns.id.findIndex((known, at) => known === id && columns.run[at] === Number(parts[1]));
    if (sample >= 0 && sample !== shown) show(sample);
  }

  async function show(sample) {
    shown = sample;
    if (location.hash !== placeOf(sample)) history.replaceState(null, "", placeOf(sample));
    title.replaceChildren();
    write(title, columns.id[sample]);
    if (index.runs.length > 1) title.append(make("span", { class: "tag" }, index.runs[columns.run[sample]]));
    const at = list.indexOf(sample);
    previous.disabled = at <= 0;
    next.disabled = at < 0 || at >= list.length - 1;
    if (!dialog.open) dialog.showModal();
    inside.replaceChildren(make("p", { class: "status" }, "Loading …"));
    const number = blockOf(sample);
    const offset = sample - index.first[number];
    const [texts, details] = await Promise.all([block("t" + number), block("d" + number)]);
    if (shown !== sample) return;
    inside.replaceChildren(...content(texts[offset], details[offset]));
    inside.scrollTop = 0;
  }

  function text(content) {
    const element = make("div", { class: "text", dir: "auto" });
    write(element, content === "" ? "(empty)" : content, foundFor);
    return element;
  }

  function content(texts, details) {
    const parts = [];
    const section = (name, ...children) => parts.push(make("h3", {}, name), ...children.flat());
    if (texts.i) section("Instruction", text(texts.i));
    if (texts.c) section("Context", text(texts.c));
    for (const [name, further] of Object.entries(texts.x || {})) {
      if (!texts.c.includes(further)) section(name.replaceAll("_", " "), text(further));
    }
    const scores = details.tables.filter((table) => table.kind === "scores");
    if (texts.k) section("Candidates", make("div", { class: "candidates" }, texts.k.map((candidate) => candidateCard(candidate, texts.p, scores))));
    if (texts.p) section("Preference", make("p", {}, texts.p === "tie" ? "tie" : ["candidate ", make("bdi", {}, texts.p)]));
    if (texts.r && texts.r.length > 0) section("References", folded(`${whole(texts.r.length)} ${texts.r.length === 1 ? "text" : "texts"}`, () => texts.r.map(text)));
    if (details.requests.length > 0 && texts.k) section("Prompts and answers", requests(details));
    for (const table of details.tables) {
      // Where there are no texts the tables are what there is to read.
      const shownTable = texts.k ? folded(`${whole(table.rows.length)} ${table.rows.length === 1 ? "row" : "rows"} of ${table.name}`, () => [rowsTable(table)]) : rowsTable(table);
      section(tableTitle(table), shownTable);
    }
    if (details.requests.length > 0 && !texts.k) section("Prompts and answers", requests(details));
    return parts;
  }

  const tableTitle = (table) => ({ comparisons: "Comparisons", scores: "Scores" })[table.kind] || table.name;

  function candidateCard([id, content, golds], preferred, scores) {
    const heading = make("h4", {}, make("bdi", {}, id));
    if (preferred !== null && preferred === id) heading.append(make("span", { class: "tag chosen" }, "preferred"));
    for (const table of scores) {
      const at = (name) => table.columns.indexOf(name);
      for (const row of table.rows.filter((row) => row[at("candidate")] === id)) {
        const attribute = row[at("attribute")];
        heading.append(make("span", { class: "tag" }, (attribute ? attribute + " " : "score ") + number(row[at("score")])));
      }
    }
    for (const [attribute, gold] of Object.entries(golds)) heading.append(make("span", { class: "tag" }, `gold ${attribute} ${number(gold, 2)}`));
    return make("div", { class: "candidate" }, heading, text(content));
  }

  function rowsTable(table) {
    const used = table.columns.map((name, at) => [name, at]).filter(([name, at]) => name !== "precision" && table.rows.some((row) => row[at] !== null && row[at] !== undefined));
    const numeric = used.map(([, at]) => table.rows.every((row) => row[at] === null || row[at] === undefined || typeof row[at] === "number"));
    const shownCell = (cell) => {
      if (cell === null || cell === undefined) return "–";
      if (typeof cell === "number") return Number.isInteger(cell) ? String(cell) : number(cell);
      if (Array.isArray(cell) && cell.every((one) => typeof one === "string")) return cell.join(", ") || "–";
      return typeof cell === "string" ? cell : JSON.stringify(cell);
    };
    if (table.rows.length === 1) {
      const facts = used.map(([name, at]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, make("bdi", {}, shownCell(table.rows[0][at])))));
      return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": tableTitle(table) }, make("table", { class: "facts" }, make("tbody", {}, facts)));
    }
    const heads = used.map(([name], k) => make("th", { scope: "col", class: numeric[k] ? "number" : "" }, name));
    const rows = table.rows.map((row) => make("tr", {}, used.map(([, at], k) => make("td", { class: numeric[k] ? "number" : "" }, make("bdi", {}, shownCell(row[at]))))));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": tableTitle(table) }, make("table", {}, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows)));
  }

  // ---- prompts and answers --------------------------------------------------------------------------------------------------------------------

  function requests(details) {
    const parts = details.requests.map((request) => requestDetails(request, details.lines));
    if (details.asked > details.requests.length) {
      parts.push(make("p", { class: "note" }, `This page contains ${whole(details.requests.length)} of ${whole(details.asked)} prompts; the run folder contains all.`));
    }
    return parts;
  }

  /** What is made when it is opened. */
  function folded(summary, made) {
    const element = make("details", {}, summary instanceof Node ? summary : make("summary", {}, summary));
    element.addEventListener("toggle", () => {
      if (element.open && element.childElementCount === 1) element.append(...made());
    });
    return element;
  }

  function requestDetails([name, messages, answer], lines) {
    const summary = make("summary", {}, make("bdi", {}, name || "prompt"), make("span", { class: "tag" }, summaryOf(answer)));
    return folded(summary, () => [
      ...answerParts(answer),
      ...messages.flatMap(([role, numbers]) => [make("p", { class: "role" }, role), text(numbers.map((at) => lines[at]).join("\n"))]),
    ]);
  }

  const labelsOf = (result) => (result && result.answer && result.answer.labels) || null;
  const outcomeOf = (result) => (typeof result.outcome === "string" ? result.outcome : (result.outcome && result.outcome.outcome) || "");

  function summaryOf(answer) {
    const labels = labelsOf(answer) || labelsOf(answer.verdict);
    const outcome = outcomeOf(answer);
    if (labels) {
      const best = labels.labels.reduce((a, b) => (b.prob > a.prob ? b : a));
      return `${best.name} ${number(best.prob)}, mass ${number(labels.mass)}${outcome === "scored" ? "" : ", " + outcome}`;
    }
    if (answer.answer && answer.answer.continuation) return `log P ${number(answer.answer.continuation.logprob, 2)}`;
    if (typeof answer.text === "string") return (answer.text.length > 120 ? answer.text.slice(0, 119) + "…" : answer.text);
    return outcome;
  }

  function answerParts(answer) {
    const parts = [];
    if (typeof answer.text === "string") parts.push(text(answer.text));
    for (const result of [answer, answer.verdict]) {
      const labels = labelsOf(result);
      if (labels) parts.push(probabilities(labels));
      const continuation = result && result.answer && result.answer.continuation;
      if (continuation) parts.push(tokens(continuation));
    }
    const outcome = outcomeOf(answer);
    const why = answer.outcome && answer.outcome.why;
    parts.push(make("p", { class: "note" }, `outcome ${outcome}${why ? ": " + why : ""}; ${whole(answer.prompt_tokens)} prompt tokens${answer.finish ? "; ended by " + answer.finish : ""}`));
    return parts;
  }

  function probabilities({ labels, mass }) {
    const gauge = (share) => {
      const bar = make("span");
      bar.style.width = `${100 * share}%`;
      return make("div", { class: "gauge", "aria-hidden": "true" }, bar);
    };
    const rows = labels.flatMap((label) => [make("bdi", {}, label.name), gauge(label.prob), make("span", {}, `${number(label.prob, 4)}  (log P ${number(label.logprob)})`)]);
    return make("div", { class: "probabilities" }, rows, make("span", {}, "label mass"), gauge(mass), make("span", {}, number(mass, 4)));
  }

  function tokens({ tokens: texts, token_logprobs: logprobs, logprob }) {
    const spans = texts.map((token, at) => make("span", { class: "token", title: `log P ${number(logprobs[at])}` }, token));
    return make("div", {}, make("div", { class: "text tokens", dir: "auto" }, spans), make("p", { class: "note" }, `log P ${number(logprob)} over ${whole(texts.length)} tokens`));
  }

  // ---- begin ----------------------------------------------------------------------------------------------------------------------------------

  async function begin() {
    const explorer = $("explorer");
    explorer.hidden = false;
    if (typeof DecompressionStream === "undefined") {
      explorer.append(make("p", { class: "warning" }, "This browser cannot show the list (no DecompressionStream). Figures and tables are complete."));
      return;
    }
    index = await unpack("index");
    columns = index.columns;
    count = columns.id ? columns.id.length : 0;
    if (count === 0) { explorer.append(make("p", { class: "note" }, `No ${index.noun}s.`)); return; }
    const table = make("table", { class: "list" }, head(), body);
    explorer.append(tools(), statusLine, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `List of ${index.noun}s` }, table), pages, dialog);
    refresh();
    dialog.addEventListener("close", () => { shown = -1; history.replaceState(null, "", "#samples"); });
    window.addEventListener("hashchange", follow);
    document.addEventListener("keydown", (event) => {
      const typing = event.target instanceof Element && event.target.closest("input, select, textarea, dialog");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      controls.query.focus();
    });
    document.documentElement.dataset.ready = "true";
    follow();
  }

  begin();
})();
