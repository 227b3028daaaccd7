// A report's page: figures drawn when they come into view, a ledger to search and sort, tables in pages.
// Words of a model reach the page as text nodes, or through plotly with labels that were escaped before.
"use strict";

// The width of a figure for print; the style sheet scales it to the page between its margins.
const PAPER = 800;
const read = id => JSON.parse(document.getElementById(id).textContent);
const common = read("common"), kept = new Map();
let printing = false;

function part(index) {
  if (!kept.has(index)) {
    const made = read("part-" + index);
    for (const trace of made.figure?.data ?? []) unfold(trace);
    kept.set(index, made);
  }
  return kept.get(index);
}

// ---- figures ------------------------------------------------------------------------------------------

const isDark = () => night.matches && !printing;
const draw = place => {
  const shown = part(place.dataset.part);
  return drawFigure(place, printing ? shown.figure : fitting(shown), common, isDark(), printing ? PAPER : 0);
};
const redraw = () => places.filter(place => place.classList.contains("drawn")).forEach(draw);

const places = all(".figure");
const watcher = new IntersectionObserver(seen => {
  for (const {isIntersecting, target} of seen) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    draw(target);
  }
}, {rootMargin: "300px"});
places.forEach(place => watcher.observe(place));
night.addEventListener("change", redraw);
whenReshaped(redraw);

for (const button of all(".save button")) {
  button.addEventListener("click", () =>
    saveFigure(part(button.parentElement.dataset.part), button.value, common, isDark()));
}

all("table.ledger").forEach(ledger);

const fill = details => {
  const {name, tables} = part(details.dataset.part);
  paged(details, tables[details.dataset.table], name);
};
const tables = all("details.paged");
for (const details of tables) details.addEventListener("toggle", () => details.open && fill(details));

// ---- paper and places ---------------------------------------------------------------------------------

// On paper everything is open, on white, and as wide as a page.
let closed = [];
addEventListener("beforeprint", () => {
  printing = true;
  closed = all("details:not([open])");
  tables.forEach(fill);
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
