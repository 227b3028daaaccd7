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

// ---- rooms ---------------------------------------------------------------------------------------------

function choose(block) {
  const select = document.querySelector(`[data-field="${CSS.escape(block.field)}"]`);
  const field = current.fields.find(one => one.name === block.field);
  if (!select || !field) return;
  offer(select, block.choices);
  const known = block.choices.map(([value]) => value), value = state.values[block.field];
  // A value of the address that cannot be chosen leaves the box blank, so that any choice is a change.
  select.value = known.includes(value) || value !== field.default ? value : known[0];
}

// A click chooses; the browser's Back returns to what was chosen before.
function pick(values) {
  for (const [name, value] of Object.entries(values)) set(name, value);
  refresh(true);
  if (values.claim) $("controls").scrollIntoView({block: "start"});
}

pick.address = values => addressOf({...state, values: {...state.values, ...values}}, current.fields, true);

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
  for (const link of all("a", $("rooms"))) {
    const room = house.rooms.find(one => one.name === link.dataset.room);
    link.href = addressOf({...state, room: room.name}, room.fields, true);
  }
  markMaps();
  const parts = [...shownParts.values()];
  // Two parts side by side have half the room: who is shown decides the form of all.
  for (const shown of parts) shown.root.hidden = shown.blank().some(one => !one);
  for (const shown of [...parts.filter(one => one.part.quick), ...parts.filter(one => !one.part.quick)]) shown.update();
  if (parts.every(one => one.root.hidden)) notify("Nothing to show yet: choose a second model.");
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
    refresh(one.kind === "choice" || one.kind === "flag");
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
    const facts = await inTurn(async () => (await ask("api/model", {model: asked})).json(), null, true);
    if (asked !== state.model) return;
    if (facts.error) throw new Error(facts.error);
    const changed = [];
    state.facts = facts;
    $("facts").textContent = `${asked} · ${facts.layers} layers · ${facts.heads} heads · width ${facts.width}`;
    for (const field of current.fields) {
      const input = document.querySelector(`[data-field="${CSS.escape(field.name)}"]`);
      if (!field.of || !input) continue;
      if (field.kind === "choice") {
        const known = [...(field.optional ? [""] : []), ...facts[field.of]];
        offer(input, known.map(one => [one, one || "no"]));
        if (!known.includes(state.values[field.name])) changed.push([field, known[0]]);
        else input.value = state.values[field.name];
      } else {
        input.max = facts[field.of] - 1;
        if (state.values[field.name] >= facts[field.of]) changed.push([field, 0]);
      }
    }
    if (!changed.length) return;
    const said = changed.map(([field, value]) => replaced(field, state.values[field.name], value));
    for (const [field, value] of changed) set(field.name, value);
    said.unshift($("status").textContent);
    refresh();
    notify(said.join(" ").trim());
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
  $("rooms").replaceChildren(...house.rooms.map(one => {
    const link = make("a", one.title, {"data-room": one.name});
    link.addEventListener("click", event => {
      if (elsewhere(event)) return;
      event.preventDefault();
      know();
      enter(one.name);
      showSecond();
    });
    return link;
  }));
  const first = house.surveys.length || !house.models.length ? "ledger" : "sphere";
  adopt(room ?? first, values);
}

// Shows what an address names; what it cannot mean is said.
function adopt(room, values) {
  const named = house.rooms.find(one => one.name === room) ?? house.rooms[0], said = [];
  if (named.name !== room) said.push(`There is no room ‘${room}’; ${named.title} is shown.`);
  for (const name of ["model", "second"]) {
    if (values[name] && !house.models.includes(values[name])) said.push(`There is no model ‘${values[name]}’ here.`);
  }
  chooseModels(values);
  for (const one of house.rooms) Object.assign(state.values, valuesOf(values, one.fields).values);
  said.push(...valuesOf(values, named.fields).said);
  if (state.model) know();
  if (current === named) {
    // The same room: what is shown and where one reads stays, where nothing else was chosen.
    for (const field of current.fields) set(field.name, state.values[field.name]);
    refresh();
  } else enter(named.name, false);
  models();
  showSecond();
  if (said.length) notify(said.join(" "));
}

// The chosen models of an address, as far as they are at hand.
function chooseModels(values) {
  state.model = house.models.includes(values.model) ? values.model : house.models[0] ?? "";
  state.second = house.models.includes(values.second) ? values.second : "";
}

addEventListener("popstate", () => {
  // A jump within the page changes no value.
  if (!house || location.pathname + location.search === state.address) return;
  const {room, values} = fromAddress();
  adopt(room ?? current.name, values);
});

// A figure for a wide place does not fit a narrow one: a part whose place crosses the limit asks for it again.
whenReshaped(() => { for (const shown of shownParts.values()) shown.update(); }, () => innerWidth);

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
