// A room's part: it asks the server, says how far the work is, shows the result or why there is none.
"use strict";

// ---- asking --------------------------------------------------------------------------------------------

const headers = () => ({"content-type": "application/json", "x-armillary-token": state.token});

async function ask(path, body, signal) {
  const how = body === undefined ? {headers: headers(), signal}
    : {method: "POST", headers: headers(), body: JSON.stringify(body), signal};
  const answer = await fetch(path, how);
  if (answer.ok) return answer;
  let text = `the server answered ${answer.status}`;
  try { text = (await answer.json()).error ?? text; } catch { /* no JSON */ }
  throw Object.assign(new Error(text), {status: answer.status});
}

// A browser opens six connections to one server, for all its tabs. A model answers one question at a time anyway, so a
// tab holds two, and a new tab finds a free one.
const STREAMS = 2;
let streams = 0;
const lined = [];

// Waits for a turn; `call` then has the connection until it is done. What is short goes first.
async function inTurn(call, signal, short = false) {
  await inLine(signal, short);
  try { return await call(); } finally { nextInLine(); }
}

function inLine(signal, short) {
  if (streams < STREAMS) { streams += 1; return Promise.resolve(); }
  return new Promise((go, stop) => {
    if (short) lined.unshift(go);
    else lined.push(go);
    signal?.addEventListener("abort", () => {
      const at = lined.indexOf(go);
      if (at >= 0) { lined.splice(at, 1); stop(new DOMException("no longer wanted", "AbortError")); }
    });
  });
}

function nextInLine() {
  const next = lined.shift();
  if (next) next();
  else streams -= 1;
}

// Calls `hear(kind, data)` for every event of a part.
async function listen(body, signal, hear) {
  const reader = (await ask("api/part", body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      const [kind, data] = event.split("\n");
      if (kind.startsWith("event: ")) hear(kind.slice(7), JSON.parse(data.slice(6)));
    }
  }
}

// ---- parts ---------------------------------------------------------------------------------------------

class ShownPart {
  constructor(part) {
    this.part = part;
    this.key = null;
    this.stop = null;
    this.clear = () => {};
    this.root = make("section", "", {class: "part", "aria-label": part.title || current.title});
    this.title = make("h2", part.title);
    this.title.hidden = !part.title;
    this.status = make("div", "", {class: "working", role: "status"});
    this.status.hidden = true;
    this.place = make("div", "", {class: "shown"});
    this.root.append(this.title, this.status, this.place);
  }

  asked() {
    const fields = {narrow: (this.root.clientWidth || innerWidth) < NARROW};
    for (const name of this.part.fields) fields[name] = state.values[name];
    fields.model = state.model;
    if (this.part.model === "second" || this.part.needs.includes("second")) fields.second = state.second;
    return fields;
  }

  // Fields that the part needs and that are blank. One that was filled before is named to the visitor; undefined stands
  // for one that nobody has filled yet, without which the part is hidden.
  blank() {
    const value = name => name === "second" ? state.second : state.values[name];
    const missing = this.part.needs.filter(name => !String(value(name) ?? "").trim());
    return missing.map(name => current.fields.find(one => one.name === name && one.default !== ""));
  }

  async update() {
    const fields = this.asked(), key = JSON.stringify(fields), blank = this.blank(), wanted = !blank.length;
    if (key === this.key && wanted) return;
    this.stop?.abort();
    if (!wanted) {
      this.key = null;
      if (this.root.hidden) { this.quiet(); this.clear(); }
      else this.refuse(`‘${blank[0].label}’ is blank; type ${blank[0].kind === "word" ? "a word" : "some words"}.`);
      return;
    }
    this.key = key;
    const long = current.fields.find(one => this.part.fields.includes(one.name) && tooLong(one, state.values[one.name]));
    if (long) return this.refuse(`‘${long.label}’ has ${[...state.values[long.name]].length.toLocaleString("en")} `
      + `characters, and the page takes at most ${long.limit.toLocaleString("en")}; shorten it, or use the command line, `
      + "which reads whole files.");
    const stop = this.stop = new AbortController();
    const late = setTimeout(() => this.say("working …", null), 150);
    this.place.setAttribute("aria-busy", "true");
    try {
      const body = {room: current.name, part: this.part.name, fields};
      const hear = (kind, data) => {
        if (kind === "result") { clearTimeout(late); this.show(data.blocks); }
        else if (kind === "refused") { clearTimeout(late); this.refuse(data.text); }
        else if (kind === "restarted") this.say(data.text, null, true);
        else if (kind === "progress") this.say(data.text, data.total ? data.done / data.total : null);
        else if (data.text !== "ready") this.say(data.text, null);
      };
      await inTurn(() => listen(body, stop.signal, hear), stop.signal);
      if (this.stop === stop && this.place.getAttribute("aria-busy") === "true") {
        this.refuse("the server went away before this was done; ask again.");
      }
    } catch (error) {
      if (error.name !== "AbortError") this.refuse(error.message);
    } finally {
      clearTimeout(late);
      if (this.stop === stop) this.stop = null;
    }
  }

  say(text, share, important = false) {
    // What was said before a result, and is heard after it, is stale.
    if (!this.stop || !this.place.hasAttribute("aria-busy")) return;
    this.status.hidden = false;
    this.root.classList.add("at-work");
    if (!this.bar) {
      this.bar = make("progress", "", {max: 1, "aria-label": "progress"});
      this.words = make("span");
      const cancel = make("button", "Cancel", {type: "button"});
      cancel.addEventListener("click", () => this.cancel());
      this.status.replaceChildren(this.bar, this.words, cancel);
    }
    if (share === null) this.bar.removeAttribute("value");
    else this.bar.value = share;
    if (important || !this.warned) this.words.textContent = text;
    if (important) { this.warned = true; notify(text); }
  }

  quiet() {
    this.status.hidden = true;
    this.status.replaceChildren();
    this.bar = null;
    this.warned = false;
    this.root.classList.remove("at-work");
    this.place.removeAttribute("aria-busy");
  }

  cancel() {
    this.stop?.abort();
    this.key = null;
    this.quiet();
    this.status.hidden = false;
    const again = make("button", "Ask again", {type: "button"});
    again.addEventListener("click", () => { this.quiet(); this.update(); });
    this.status.replaceChildren(make("span", "Cancelled."), again);
    notify("Cancelled.");
  }

  show(blocks) {
    this.quiet();
    this.clear();
    for (const block of blocks) if (block.kind === "choices") choose(block);
    this.clear = render(this.place, blocks, pick);
    markMaps();
    if (this.part.name === "claim") this.place.prepend(back());
    this.root.dataset.shown = String(Number(this.root.dataset.shown ?? 0) + 1);
  }

  refuse(text) {
    this.quiet();
    this.clear();
    this.clear = () => {};
    // A model's name keeps its small letter.
    const named = house.models.some(name => text.startsWith(name));
    const said = named ? text : text.charAt(0).toUpperCase() + text.slice(1);
    this.place.replaceChildren(make("p", said, {class: "refused", role: "alert"}));
  }

  leave() { this.stop?.abort(); this.clear(); }
}

// From a claim's evidence to its row in the ledger.
function back() {
  const button = make("button", "↑ Back to the ledger", {type: "button"});
  button.addEventListener("click", () => {
    const row = document.querySelector(`tr[data-id="${CSS.escape(state.values.claim)}"] a`);
    pick({claim: ""});
    row?.focus();
  });
  return button;
}

function notify(text) { $("status").textContent = text; }
