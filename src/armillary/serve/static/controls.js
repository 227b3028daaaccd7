// A room's controls, made from its fields, and their values in the page's address.
"use strict";

// One labelled control; `change` is called when its value changes.
function control(field, facts, change) {
  const id = `field-${field.name}`, label = make("label", "", {for: id, class: `field kind-${field.kind}`});
  label.append(make("span", field.label, {class: "name"}));
  const input = field.kind === "choice" ? make("select", "", {id}) : field.kind === "sentence"
    ? make("textarea", "", {id, rows: 1, spellcheck: "false"}) : make("input", "", {id});
  input.dataset.field = field.name;
  if (field.about) input.setAttribute("aria-describedby", `${id}-about`);
  if (field.kind === "choice") offer(input, field.choices);
  if (field.kind === "flag") input.type = "checkbox";
  if (field.kind === "word") input.type = "text";
  if (field.kind === "whole" || field.kind === "number") {
    const last = field.of && facts ? (facts[field.of] ?? 1) - 1 : field.most;
    Object.assign(input, {type: field.slides ? "range" : "number", min: field.least, max: last, step: field.step});
  }
  label.append(input);
  if (field.slides) label.append(make("output", "", {for: id}));
  if (field.about) label.append(make("small", field.about, {id: `${id}-about`, class: "soft"}));
  const late = field.kind === "sentence" || field.kind === "word";
  let waiting = null;
  input.addEventListener("input", () => {
    fit(input);
    clearTimeout(waiting);
    waiting = setTimeout(() => change(field, readControl(field, input)), late ? 350 : field.slides ? 60 : 120);
  });
  return label;
}

function offer(select, choices) {
  const before = select.value;
  select.replaceChildren(...choices.map(([value, text]) => make("option", text, {value: value || " "})));
  [...select.options].forEach((option, i) => { option.value = choices[i][0]; });
  if (choices.some(([value]) => value === before)) select.value = before;
}

// A sentence's box grows with its text.
function fit(input) {
  if (input.tagName === "TEXTAREA") {
    input.style.height = "auto";
    input.style.height = `${Math.min(200, input.scrollHeight + 2)}px`;
  }
  const output = input.parentElement?.querySelector("output");
  if (output) output.textContent = input.value;
}

function readControl(field, input) {
  if (field.kind === "flag") return input.checked;
  if (field.kind === "whole" || field.kind === "number") {
    const value = Number(input.value);
    return input.value === "" || Number.isNaN(value) ? field.default : value;
  }
  return input.value;
}

function writeControl(field, input, value) {
  if (field.kind === "flag") input.checked = Boolean(value);
  else if (field.kind === "choice" && ![...input.options].some(option => option.value === String(value))) {
    // The server says later what can be chosen; until then, the default, so that a wrong address is no dead end.
    offer(input, [...new Set([field.default, value])].map(one => [one, one || "default"]));
    input.value = value;
  } else if (document.activeElement !== input || String(value) !== input.value) input.value = value;
  fit(input);
}

// A text that the page does not take is refused in a sentence, not cut.
const tooLong = (field, value) => ["sentence", "word"].includes(field.kind) && [...String(value)].length > field.limit;

// ---- the address: everything that is not a default -----------------------------------------------------

function fromAddress() {
  const query = new URLSearchParams(location.search);
  return {token: query.get("token"), room: query.get("room"), values: Object.fromEntries(query)};
}

// A field's value in an address; undefined if the field cannot have it.
function parsed(field, text) {
  if (field.kind === "flag") return text === "true" ? true : text === "false" ? false : undefined;
  if (field.kind === "whole" || field.kind === "number") {
    const value = text.trim() ? Number(text) : NaN;
    const whole = field.kind === "number" || Number.isInteger(value);
    return whole && value >= field.least && value <= field.most ? value : undefined;
  }
  if (field.choices.length && !field.choices.some(([value]) => value === text)) return undefined;
  return text;
}

// The values of an address by field, and a sentence for each that is replaced by its default.
function valuesOf(address, fields) {
  const values = {}, said = [];
  for (const field of fields) {
    const value = field.name in address ? parsed(field, address[field.name]) : field.default;
    values[field.name] = value ?? field.default;
    if (value === undefined) said.push(replaced(field, address[field.name], field.default));
  }
  return {values, said};
}

const replaced = (field, given, shown) =>
  `‘${field.label}’ cannot be ${given}; it is ${shown === "" ? "left out" : shown} now.`;

// The address of a view; whoever opens it elsewhere needs the token.
function addressOf(state, fields, token) {
  const query = new URLSearchParams();
  if (token) query.set("token", state.token);
  query.set("room", state.room);
  for (const name of ["model", "second"]) if (state[name]) query.set(name, state[name]);
  for (const field of fields) {
    const value = state.values[field.name];
    if (value !== undefined && value !== field.default && !tooLong(field, value)) query.set(field.name, String(value));
  }
  return `${location.pathname}?${query}`;
}

function toAddress(state, fields, push) {
  const address = state.address = addressOf(state, fields, state.inAddress);
  if (address === location.pathname + location.search) return;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
