// The page of `armillary explore`: rooms, their controls, and parts that arrive as server-sent events.
"use strict";

const $ = id => document.getElementById(id);
const state = {token: "", inAddress: false, room: "", model: "", second: "", values: {}, facts: null};
let house = null, current = null, shownParts = new Map();

// The token of this tab. In a notebook's frame a browser may forbid storage; there the address holds the token.
function remembered(token) {
  try {
    if (token === undefined) return sessionStorage.getItem("armillary-token");
    sessionStorage.setItem("armillary-token", token);
  } catch { /* forbidden */ }
  return null;
}

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
    const fields = {narrow: innerWidth < NARROW};
    for (const name of this.part.fields) fields[name] = state.values[name];
    fields.model = state.model;
    if (this.part.model === "second" || this.part.needs.includes("second")) fields.second = state.second;
    return fields;
  }

  wanted() {
    return this.part.needs.every(name => String((name === "second" ? state.second : state.values[name]) ?? "").trim());
  }

  async update() {
    const fields = this.asked(), key = JSON.stringify(fields), wanted = this.wanted();
    this.root.hidden = !wanted;
    if (key === this.key && wanted) return;
    this.stop?.abort();
    if (!wanted) { this.key = null; this.clear(); return; }
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
      await listen(body, stop.signal, (kind, data) => {
        if (kind === "result") { clearTimeout(late); this.show(data.blocks); }
        else if (kind === "refused") { clearTimeout(late); this.refuse(data.text); }
        else if (kind === "restarted") this.say(data.text, null, true);
        else if (kind === "progress") this.say(data.text, data.total ? data.done / data.total : null);
        else if (data.text !== "ready") this.say(data.text, null);
      });
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

// ---- rooms ---------------------------------------------------------------------------------------------

function choose(block) {
  const select = document.querySelector(`[data-field="${CSS.escape(block.field)}"]`);
  const field = current.fields.find(one => one.name === block.field);
  if (!select || !field) return;
  offer(select, block.choices);
  const known = block.choices.map(([value]) => value), value = state.values[block.field];
  if (!known.includes(value)) { select.value = known[0]; } else select.value = value;
}

function pick(values) {
  for (const [name, value] of Object.entries(values)) set(name, value);
  refresh();
  if (values.claim) $("controls").scrollIntoView({block: "start"});
}

function markMaps() { for (const entry of figures) markChosen(entry, state.values); }

function set(name, value) {
  state.values[name] = value;
  const field = current.fields.find(one => one.name === name);
  const input = document.querySelector(`[data-field="${CSS.escape(name)}"]`);
  if (field && input) writeControl(field, input, value);
}

function refresh(push = false) {
  toAddress(state, current.fields, push);
  notify("");
  markMaps();
  const parts = [...shownParts.values()];
  for (const shown of [...parts.filter(one => one.part.quick), ...parts.filter(one => !one.part.quick)]) shown.update();
  if (parts.every(one => one.root.hidden)) notify("Nothing to show yet: type a sentence.");
}

function enter(name, push = true) {
  for (const shown of shownParts.values()) shown.leave();
  current = house.rooms.find(room => room.name === name) ?? house.rooms[0];
  state.room = current.name;
  document.title = `${current.title} · Armillary`;
  $("about").textContent = current.about;
  for (const link of all("a", $("rooms"))) {
    if (link.dataset.room === current.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const field of current.fields) state.values[field.name] ??= field.default;
  // A room for two models opens with two.
  if (!state.second && current.parts.every(part => part.needs.includes("second"))) {
    state.second = house.models.find(one => one !== state.model) ?? "";
    if ($("choose-second")) $("choose-second").value = state.second;
  }
  build();
  shownParts = new Map(current.parts.map(part => [part.name, new ShownPart(part)]));
  const places = new Map();
  $("parts").replaceChildren();
  for (const [name, shown] of shownParts) {
    const beside = places.get(shown.part.beside);
    if (beside) { beside.append(shown.root); continue; }
    const row = make("div", "", {class: "row"});
    row.append(shown.root);
    $("parts").append(row);
    places.set(name, row);
  }
  refresh(push);
}

function build() {
  const form = $("controls");
  form.replaceChildren(...current.fields.map(field => control(field, state.facts, (one, value) => {
    state.values[one.name] = value;
    refresh();
  })));
  for (const field of current.fields) set(field.name, state.values[field.name]);
}

// Shows the box of the second model where the room compares two; known once the boxes are there.
let showSecond = () => {};

function models() {
  const needsSecond = room => room.parts.some(part => part.model === "second" || part.needs.includes("second"));
  const boxes = [["model", "Model", house.models, false], ["second", "Second model", ["", ...house.models], true]];
  $("models").replaceChildren(...boxes.map(([name, label, known, second]) => {
    const box = make("label", `${label} `), select = make("select", "", {id: `choose-${name}`});
    offer(select, known.map(one => [one, one || "none"]));
    select.value = state[name];
    select.addEventListener("change", () => {
      state[name] = select.value;
      if (!second) know();
      refresh(true);
    });
    box.append(select);
    box.dataset.second = second;
    return box;
  }));
  showSecond = () => { for (const box of all("[data-second=true]", $("models"))) box.hidden = !needsSecond(current); };
}

// What the chosen model is; controls get their limits from it.
async function know() {
  const asked = state.model;
  $("facts").textContent = `${asked}: loading …`;
  try {
    const facts = await (await ask("api/model", {model: asked})).json();
    if (asked !== state.model) return;
    if (facts.error) throw new Error(facts.error);
    state.facts = facts;
    $("facts").textContent = `${asked} · ${facts.layers} layers · ${facts.heads} heads · width ${facts.width}`;
    for (const field of current.fields) {
      const input = document.querySelector(`[data-field="${CSS.escape(field.name)}"]`);
      if (!field.of || !input) continue;
      if (field.kind === "choice") {
        const known = [...(field.optional ? [""] : []), ...facts[field.of]];
        offer(input, known.map(one => [one, one || "no"]));
        if (!known.includes(state.values[field.name])) pick({[field.name]: known[0]});
        else input.value = state.values[field.name];
      } else {
        input.max = facts[field.of] - 1;
        if (state.values[field.name] >= facts[field.of]) pick({[field.name]: 0});
      }
    }
  } catch (error) {
    if (asked === state.model) $("facts").textContent = `${asked}: ${error.message}`;
  }
}

// ---- opening -------------------------------------------------------------------------------------------

function askToken(text) {
  const form = make("form", "", {class: "token"}), input = make("input", "", {type: "password", id: "token"});
  const label = make("label", "Token ", {for: "token"}), button = make("button", "Open");
  form.append(make("p", text), label, input, button);
  form.addEventListener("submit", event => {
    event.preventDefault();
    const given = input.value.trim();
    state.token = given.includes("token=") ? new URLSearchParams(given.slice(given.indexOf("?"))).get("token") : given;
    form.remove();
    open();
  });
  $("room").prepend(form);
  $("about").textContent = "";
}

async function open() {
  try {
    house = await (await ask("api/rooms")).json();
  } catch (error) {
    return error.status === 403 ? askToken("This page needs the token that armillary explore printed with its address.")
      : void ($("about").textContent = error.message);
  }
  remembered(state.token);
  shared = house.common;
  $("version").textContent = `Armillary ${house.version}`;
  const {room, values} = fromAddress();
  chooseModels(values);
  for (const one of house.rooms) for (const field of one.fields) {
    if (field.name in values) state.values[field.name] = parsed(field, values[field.name]);
  }
  $("rooms").replaceChildren(...house.rooms.map(one => {
    const link = make("a", one.title, {href: `?room=${one.name}`, "data-room": one.name});
    link.addEventListener("click", event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      enter(one.name);
      showSecond();
      know();
    });
    return link;
  }));
  const first = house.surveys.length || !house.models.length ? "ledger" : "sphere";
  enter(room ?? first, false);
  models();
  showSecond();
  if (state.model) know();
}

// The chosen models of an address, as far as they are at hand.
function chooseModels(values) {
  state.model = house.models.includes(values.model) ? values.model : house.models[0] ?? "";
  state.second = house.models.includes(values.second) ? values.second : "";
}

addEventListener("popstate", () => {
  const {room, values} = fromAddress();
  if (!house) return;
  chooseModels(values);
  for (const one of house.rooms) for (const field of one.fields) {
    state.values[field.name] = field.name in values ? parsed(field, values[field.name]) : field.default;
  }
  for (const name of ["model", "second"]) if ($(`choose-${name}`)) $(`choose-${name}`).value = state[name];
  enter(room, false);
  showSecond();
  if (state.model) know();
});

// A figure for a wide window does not fit a narrow one: it is asked for again when the window crosses the limit.
whenReshaped(() => { for (const shown of shownParts.values()) shown.update(); });

$("controls").addEventListener("submit", event => event.preventDefault());
$("export").addEventListener("click", async () => {
  $("exported").textContent = "gathering …";
  try {
    const fields = {...state.values, model: state.model, second: state.second, narrow: false};
    const known = new Set(["model", "second", "narrow", ...current.fields.map(field => field.name)]);
    for (const name of Object.keys(fields)) if (!known.has(name)) delete fields[name];
    const page = await (await ask("api/export", {room: current.name, fields})).blob();
    const href = URL.createObjectURL(page), link = make("a", "", {href, download: `armillary-${current.name}.html`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
    $("exported").textContent = "saved.";
  } catch (error) {
    $("exported").textContent = error.message;
  }
});

const given = fromAddress();
state.inAddress = Boolean(given.token);
state.token = given.token ?? remembered() ?? "";
open();
