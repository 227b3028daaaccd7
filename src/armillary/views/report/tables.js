// Ledgers that can be searched and sorted, and tables in pages. Words of a model reach the page as text nodes.
"use strict";

const PAGE = 25;

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

function pieces(element) {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) found.push(walker.currentNode.data);
  return found;
}

// Whether a text holds a word. One or two letters ('OV', 'k') are in nearly every text: where some text has them as a
// word, texts that have them within a word ('over') do not count.
function holding(word, texts) {
  const alone = /^\p{L}{1,2}$/u.test(word) && new RegExp(`(^|\\P{L})${word}(\\P{L}|$)`, "u");
  return alone && texts.some(text => alone.test(text)) ? text => alone.test(text) : text => text.includes(word);
}

// ---- the ledger ---------------------------------------------------------------------------------------

function ledger(table) {
  const area = table.closest("section") ?? document;
  const rows = all("tbody tr[data-id]", table), bodies = all("tbody[data-chapter]", table);
  // Once as a reader sees it, and once with spaces where one element ends and the next begins.
  const homes = rows.map(row => row.parentElement), words = rows.map(row =>
    `${row.textContent} ${row.dataset.words ?? ""} ${pieces(row).join(" ")}`.toLowerCase());
  const buttons = all("th button", table), chips = all(".chip", area), one = id => document.getElementById(id);
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
    const holds = holding(one("find").value.trim().toLowerCase(), words);
    let left = 0;
    rows.forEach((row, i) => {
      const fits = (!kinds.length || kinds.includes(row.dataset.kind)) && holds(words[i])
        && (chapter === "" || homes[i] === bodies[chapter]) && (nature === "" || row.dataset.nature === nature);
      row.hidden = !fits;
      left += fits;
    });
    for (const body of bodies) body.hidden = !all("tr[data-id]:not([hidden])", body).length;
    one("found").textContent = `${left} of ${rows.length}`;
    area.querySelector(".none").hidden = left > 0;
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

// Whether a narrow screen cannot show the columns side by side; each row then stands as a list of terms.
function tooWide(table) {
  const widths = table.columns.map((column, j) =>
    table.rows.reduce((most, row) => Math.max(most, row[j].length), column.name.length) + 2);
  return widths.reduce((sum, width) => sum + width, 0) > 48;
}

// Fills a folded table; `name` is the stem of its file.
function paged(details, table, name) {
  const place = details.querySelector("div");
  if (place.firstChild) return;
  const raw = fields(table.csv).slice(1), words = table.rows.map(row => row.join(" ").toLowerCase());
  const head = make("tr"), body = make("tbody"), shown = make("span", "", {class: "soft"});
  let sort = {column: null}, first = 0, found = table.rows.map((_, i) => i);
  const stacks = tooWide(table);

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
        make("td", cell, {class: table.columns[j].number ? "number" : "", title: cell.length > 40 ? cell : "",
          "data-name": stacks ? table.columns[j].name : ""})));
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
  save.addEventListener("click", () => saveText(table.csv, table.file || name + ".csv"));

  const bar = make("div", "", {class: "pager"}), wide = make("div", "", {class: "wide", tabindex: 0});
  bar.append(back, on, shown, ...(table.rows.length > PAGE ? [find] : []), save);
  const kinds = [table.columns.length > 8 ? "many" : "", stacks ? "stacks" : ""].join(" ").trim();
  const drawn = make("table", "", {class: kinds}), top = make("thead");
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
