// A report's page: figures drawn when they come into view, a ledger to search and sort, tables in pages.
// Words of a model reach the page as text nodes, or through plotly with labels that were escaped before.
"use strict";

const PAGE = 25;
// The width of a figure for print; the style sheet scales it to the page between its margins.
const PAPER = 800;
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const read = id => JSON.parse(document.getElementById(id).textContent);
const common = read("common"), kept = new Map();
const night = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function part(index) {
  if (!kept.has(index)) {
    const made = read("part-" + index);
    for (const trace of made.figure?.data ?? []) unfold(trace);
    kept.set(index, made);
  }
  return kept.get(index);
}

// The page has the names of a map's rows and columns once; plotly needs them in every cell.
function unfold(trace) {
  const folded = trace.hovertext;
  if (folded === undefined || Array.isArray(folded)) return;
  trace.hovertext = folded.cells.map((line, i) =>
    line.map((cell, j) => folded.rows[i] + folded.columns[j] + "<br>" + cell));
}

function make(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// ---- figures ------------------------------------------------------------------------------------------

// Only under keys that hold colours: a token '#FBFAF7' is data.
function darker(value, key = "") {
  if (Array.isArray(value)) return value.map(one => darker(one, key));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, darker(v, k)]));
  }
  return key.endsWith("color") && common.darker[value] || value;
}

function themed(figure, dark) {
  const made = dark ? darker(figure) : structuredClone(figure);
  made.layout.template = common.templates[dark ? "dark" : "light"];
  return made;
}

const isDark = () => night.matches && !printing;

// The heading is HTML, so that it wraps with the window; a saved picture gets it back as plotly's title.
function draw(place) {
  const {data, layout} = themed(part(place.dataset.part).figure, isDark());
  layout.height -= layout.margin.t - common.top;
  layout.margin.t = common.top;
  layout.title = {text: ""};
  if (printing) Object.assign(layout, {width: PAPER, paper_bgcolor: "#fff", plot_bgcolor: "#fff"});
  else layout.autosize = true;
  place.classList.add("drawn");
  Plotly.react(place, data, layout, {responsive: !printing, displayModeBar: false});
}

const places = all(".figure");
const watcher = new IntersectionObserver(seen => {
  for (const {isIntersecting, target} of seen) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    draw(target);
  }
}, {rootMargin: "300px"});
places.forEach(place => watcher.observe(place));
night.addEventListener("change", () => places.filter(place => place.classList.contains("drawn")).forEach(draw));

function saveText(text, name) {
  const href = URL.createObjectURL(new Blob([text], {type: "text/csv"})), link = make("a", "", {href, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

for (const button of all(".save button")) {
  button.addEventListener("click", () => {
    const {name, figure, csv} = part(button.parentElement.dataset.part);
    if (button.value === "csv") return saveText(csv, name + ".csv");
    const made = themed(figure, isDark());
    const size = {width: 1100, height: made.layout.height, scale: 2};
    Plotly.downloadImage(made, {format: button.value, filename: name, ...size});
  });
}

// ---- sorting ------------------------------------------------------------------------------------------

// What is missing stands last, whichever way the rest runs.
function order(keys, number, down) {
  const known = key => key !== "" && key !== undefined && !(number && Number.isNaN(Number(key)));
  return (i, j) => {
    const a = keys[i], b = keys[j];
    if (!known(a) || !known(b)) return known(b) - known(a) || i - j;
    const difference = number ? Number(a) - Number(b) : a.localeCompare(b, "en", {numeric: true});
    return (down ? -difference : difference) || i - j;
  };
}

// Once up, once down, then as it was.
const turned = (sort, column) => sort.column !== column ? {column, down: false}
  : sort.down ? {column: null} : {column, down: true};

function mark(buttons, sort) {
  buttons.forEach((button, i) => {
    const on = sort.column === i;
    button.closest("th").setAttribute("aria-sort", !on ? "none" : sort.down ? "descending" : "ascending");
  });
}

// ---- the ledger ---------------------------------------------------------------------------------------

function ledger(table) {
  const rows = all("tbody tr[data-id]", table), bodies = all("tbody[data-chapter]", table);
  const homes = rows.map(row => row.parentElement), words = rows.map(row => row.textContent.toLowerCase());
  const buttons = all("th button", table), chips = all(".chip"), one = id => document.getElementById(id);
  const together = table.querySelector("tbody.all"), pressed = chip => chip.getAttribute("aria-pressed") === "true";
  let sort = {column: null};

  function arrange() {
    const grouped = one("grouped")?.checked ?? true;
    let places = rows.map((_, i) => i);
    if (sort.column !== null) {
      const keys = rows.map(row => row.dataset["k" + sort.column]);
      places.sort(order(keys, buttons[sort.column].dataset.number === "1", sort.down));
    }
    for (const i of places) (grouped ? homes[i] : together).append(rows[i]);
    filter();
  }

  function filter() {
    const kinds = chips.filter(pressed).map(chip => chip.value);
    const chapter = one("chapter")?.value ?? "", nature = one("nature")?.value ?? "";
    const word = one("find").value.trim().toLowerCase();
    let left = 0;
    rows.forEach((row, i) => {
      const fits = (!kinds.length || kinds.includes(row.dataset.kind)) && words[i].includes(word)
        && (chapter === "" || homes[i] === bodies[chapter]) && (nature === "" || row.dataset.nature === nature);
      row.hidden = !fits;
      left += fits;
    });
    for (const body of bodies) body.hidden = !all("tr[data-id]:not([hidden])", body).length;
    one("found").textContent = `${left} of ${rows.length}`;
    document.querySelector(".none").hidden = left > 0;
  }

  buttons.forEach((button, i) => button.addEventListener("click", () => {
    sort = turned(sort, i);
    mark(buttons, sort);
    arrange();
  }));
  for (const chip of chips) chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", !pressed(chip));
    filter();
  });
  one("find").addEventListener("input", filter);
  for (const name of ["chapter", "nature"]) one(name)?.addEventListener("change", filter);
  one("grouped")?.addEventListener("change", arrange);
  one("whole").addEventListener("change", event => table.classList.toggle("whole", event.target.checked));
  mark(buttons, sort);
  // A page that was reloaded keeps what was typed and chosen.
  table.classList.toggle("whole", one("whole").checked);
  arrange();
}
all("table.ledger").forEach(ledger);

// ---- tables in pages ----------------------------------------------------------------------------------

// Fields of a CSV as it was written: quotes are doubled inside quotes.
function fields(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === "\n") rows.push([]);
  }
  return rows;
}

function paged(details) {
  const table = part(details.dataset.part).tables[details.dataset.table], place = details.querySelector("div");
  if (place.firstChild) return;
  const raw = fields(table.csv).slice(1), words = table.rows.map(row => row.join(" ").toLowerCase());
  const head = make("tr"), body = make("tbody"), shown = make("span", "", {class: "soft"});
  let sort = {column: null}, first = 0, found = table.rows.map((_, i) => i);

  const buttons = table.columns.map(column => {
    const cell = make("th", "", {scope: "col", title: column.meaning, class: column.number ? "number" : ""});
    cell.append(make("button", column.name, {type: "button"}));
    head.append(cell);
    return cell.firstChild;
  });
  const find = make("input", "", {type: "search", placeholder: "find", "aria-label": "find in this table"});
  const back = make("button", "‹", {type: "button", "aria-label": "rows before"});
  const on = make("button", "›", {type: "button", "aria-label": "rows after"});
  const save = make("button", "csv", {type: "button", "aria-label": "save this table as csv"});

  function arrange() {
    const word = find.value.trim().toLowerCase();
    found = table.rows.map((_, i) => i).filter(i => words[i].includes(word));
    if (sort.column !== null) {
      const keys = raw.map(row => row[sort.column]);
      found.sort(order(keys, table.columns[sort.column].number, sort.down));
    }
    first = 0;
    turn();
  }

  function turn() {
    body.replaceChildren(...found.slice(first, first + PAGE).map(i => {
      const row = make("tr");
      row.append(...table.rows[i].map((cell, j) =>
        make("td", cell, {class: table.columns[j].number ? "number" : "", title: cell.length > 40 ? cell : ""})));
      return row;
    }));
    const last = Math.min(first + PAGE, found.length), cut = table.rows.length < table.of;
    const of = `${found.length.toLocaleString("en")}${cut ? ` (the first of ${table.of.toLocaleString("en")}` +
      (table.file ? `; all of them are in tables/${table.file})` : ")") : ""}`;
    shown.textContent = found.length ? `rows ${first + 1}–${last} of ${of}` : "no row fits";
    back.disabled = first === 0;
    on.disabled = last >= found.length;
  }

  buttons.forEach((button, i) => button.addEventListener("click", () => {
    sort = turned(sort, i);
    mark(buttons, sort);
    arrange();
  }));
  find.addEventListener("input", arrange);
  back.addEventListener("click", () => { first = Math.max(0, first - PAGE); turn(); });
  on.addEventListener("click", () => { first += PAGE; turn(); });
  save.addEventListener("click", () => saveText(table.csv, table.file || part(details.dataset.part).name + ".csv"));

  const bar = make("div", "", {class: "pager"}), wide = make("div", "", {class: "wide", tabindex: 0});
  bar.append(back, on, shown, ...(table.rows.length > PAGE ? [find] : []), save);
  const drawn = make("table", "", {class: table.columns.length > 8 ? "many" : ""}), top = make("thead");
  top.append(head);
  drawn.append(top, body);
  wide.append(drawn);
  const meanings = make("details", "", {class: "meanings"}), list = make("dl");
  for (const column of table.columns) list.append(make("dt", column.name), make("dd", column.meaning || "–"));
  meanings.append(make("summary", "What the columns mean"), list);
  const note = make("p", "", {class: "printed soft"});
  if (table.of > PAGE) note.textContent = `The first rows of ${table.of.toLocaleString("en")}` +
    (table.file ? `; all of them are in tables/${table.file}.` : ".");
  place.append(bar, wide, note, meanings);
  mark(buttons, sort);
  turn();
}

const tables = all("details.paged");
for (const details of tables) details.addEventListener("toggle", () => details.open && paged(details));

// ---- paper and places ---------------------------------------------------------------------------------

// On paper everything is open, on white, and as wide as a page.
let closed = [];
addEventListener("beforeprint", () => {
  printing = true;
  closed = all("details:not([open])");
  tables.forEach(paged);
  closed = all("details:not([open])");
  for (const details of closed) if (!details.matches(".meanings")) details.open = true;
  places.forEach(draw);
});
addEventListener("afterprint", () => {
  printing = false;
  for (const details of closed) details.open = false;
  places.forEach(draw);
});

// Figures above a linked claim have their heights from the start, so the link lands where it should.
function visit() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (const row of all("tr[data-id]")) row.classList.toggle("here", row.dataset.id === target?.id);
}
addEventListener("hashchange", visit);
visit();
