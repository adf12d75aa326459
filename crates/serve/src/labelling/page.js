"use strict";
// Texts reach the page as text nodes only: nothing here makes markup from a string.
(() => {
  const $ = (id) => document.getElementById(id);
  // So soon after a task has come nobody has read it: a key pressed twice was meant for the one before.
  const UNREAD = 400;
  const token = location.hash.slice(1);

  let status = null;
  let shown = 0;
  let busy = false;

  // ---- what can be answered ----

  const PAIR = [
    { answer: "left", keys: ["1", "ArrowLeft", "a"], text: "Text 1 is better" },
    { answer: "tie", keys: ["0", "t"], text: "Neither is better" },
    { answer: "right", keys: ["2", "ArrowRight", "b"], text: "Text 2 is better" },
  ];

  const choicesOf = (task) =>
    task.scale ? task.scale.map(({ value, key }) => ({ answer: value, keys: [String(key)], text: String(value) })) : PAIR;

  const button = ({ answer, keys, text }) => {
    const made = document.createElement("button");
    const cap = document.createElement("kbd");
    made.type = "button";
    made.setAttribute("aria-keyshortcuts", keys.join(" "));
    cap.textContent = keys[0];
    // A score that is its own key says so once.
    made.append(...(text === keys[0] ? [text] : [cap, " " + text]));
    made.addEventListener("click", () => give(answer));
    return made;
  };

  const question = (task) => {
    const by = task.attribute ? " in " + task.attribute : "";
    return (task.scale ? "How good is it" : "Which is better") + by + "?";
  };

  // ---- what is shown ----

  const put = (id, given) => {
    const text = given ?? "";
    $(id + "-part").hidden = text === "";
    // Laid out anew only where it is another: it may be a megabyte.
    if ($(id).textContent !== text) $(id).textContent = text;
    $(id).scrollTop = 0;
  };

  const wrong = (text) => {
    $("wrong").hidden = !text;
    $("wrong").textContent = text;
  };

  function show(answer, said) {
    status = answer;
    const { total, done, last, task } = status;
    const focused = document.activeElement;
    $("count").textContent = `${done} of ${total} done`;
    $("progress").max = total;
    $("progress").value = done;
    document.title = `${done} of ${total} · probity label`;
    wrong("");
    $("asked").hidden = $("choices").hidden = $("skip").hidden = !task;
    $("finished").hidden = Boolean(task);
    $("ends").hidden = !task?.scale;
    $("answers").hidden = false;
    $("undo").disabled = last === null;
    if (task) showTask(task);
    else $("finished-h").textContent = total === 1 ? "The task is done." : `All ${total} tasks are done.`;
    $("said").textContent = `${said} ${task ? `Task ${done + 1} of ${total}.` : "All tasks are done."}`.trim();
    // What was pressed may be gone, and focus with it.
    if (focused !== document.body && (!focused.checkVisibility() || focused.disabled)) $(task ? "question" : "finished-h").focus();
    scrollTo(0, 0);
    shown = performance.now();
  }

  function showTask(task) {
    $("question").textContent = question(task);
    put("instruction", task.instruction);
    put("context", task.context);
    for (const place of [0, 1]) {
      $(`part-${place + 1}`).hidden = place >= task.texts.length;
      $(`text-${place + 1}`).textContent = task.texts[place] ?? "";
    }
    $("heading-1").textContent = task.scale ? "Text" : "Text 1";
    $("choices").replaceChildren(...choicesOf(task).map(button));
    if (task.scale) $("ends").textContent = `${task.scale[0].value} is the worst, ${task.scale.at(-1).value} the best.`;
  }

  // ---- what is said to the server ----

  /** What the server answers; nothing where it does not. */
  async function ask(path, body) {
    const headers = { Authorization: "Bearer " + token };
    if (body) headers["Content-Type"] = "application/json";
    try {
      const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
      return { status: response.status, answer: await response.json() };
    } catch {
      return null;
    }
  }

  async function send(path, body, said) {
    if (busy) return;
    busy = true;
    let reply = await ask(path, body);
    if (reply && reply.status === 409) {
      // Another page was faster, or this answer came twice: what there is now is asked anew.
      said = `Ignored: ${reply.answer.error.message}.`;
      reply = await ask("task");
    }
    busy = false;
    if (!reply) wrong("The server does not respond; nothing was saved. Check that the command is running, then answer again.");
    else if (reply.status === 401) wrong("This page belongs to a command that has ended. Open the address printed by the running command.");
    else if (reply.status !== 200) wrong(reply.answer.error.message);
    else show(reply.answer, said);
  }

  const isUnread = () => performance.now() - shown < UNREAD;

  function give(answer) {
    const task = status?.task;
    if (!task || isUnread()) return;
    const seconds = Math.round(performance.now() - shown) / 1000;
    const said = answer === "skip" ? "Skipped." : "Saved.";
    send("label", { task: task.number, answer, seconds }, said);
  }

  function undo() {
    if (!status || status.last === null || isUnread()) return;
    send("undo", { task: status.last }, "Undone.");
  }

  // ---- keys ----

  /** Keyboards whose upper row gives digits with Shift alone have them without. */
  const named = (event) => {
    const digit = /^Digit(\d)$/.exec(event.code);
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    return digit && !event.shiftKey && !/^[a-z0-9?]$/.test(key) ? digit[1] : key;
  };

  document.addEventListener("keydown", (event) => {
    // Enter held down on a button would press it again and again.
    if (event.repeat && event.target.matches("button")) event.preventDefault();
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || $("help").open || !$("keys-on").checked) return;
    const key = named(event);
    const task = status?.task;
    const choice = task && choicesOf(task).find(({ keys }) => keys.includes(key));
    if (choice) give(choice.answer);
    else if (key === "s") give("skip");
    else if (key === "u" || key === "Backspace") undo();
    else if (key === "?") $("help").showModal();
    else return;
    event.preventDefault();
  });

  $("skip").addEventListener("click", () => give("skip"));
  $("undo").addEventListener("click", undo);
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("close").addEventListener("click", () => $("help").close());
  // Another token in the address is another command's page.
  addEventListener("hashchange", () => location.reload());

  if (token) send("task", null, "");
  else wrong("Open the complete printed address, including the part after #.");
})();
