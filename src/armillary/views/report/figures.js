// Figures in the reader's theme, drawn and saved. Shared by reports and by the pages of `armillary explore`.
// A figure is a plotly record without its template; `common` has both templates and the dark palette.
"use strict";

// Windows below this width get a figure's narrow form.
const NARROW = 640;
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const night = matchMedia("(prefers-color-scheme: dark)");

function make(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// The names of a map's rows and columns are sent once; plotly needs them in every cell.
function unfold(trace) {
  const folded = trace.hovertext;
  if (folded === undefined || Array.isArray(folded) || typeof folded === "string") return;
  trace.hovertext = folded.cells.map((line, i) =>
    line.map((cell, j) => folded.rows[i] + folded.columns[j] + "<br>" + cell));
}

// Only under keys that hold colours: a token '#FBFAF7' is data.
function darker(value, palette, key = "") {
  if (Array.isArray(value)) return value.map(one => darker(one, palette, key));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, darker(v, palette, k)]));
  }
  return key.endsWith("color") && palette[value] || value;
}

function themed(figure, dark, common) {
  const made = dark ? darker(figure, common.darker) : structuredClone(figure);
  made.layout.template = common.templates[dark ? "dark" : "light"];
  return made;
}

// The part's figure for this window. A narrow form holds its layout and what differs in its traces; null: gone.
function fitting(part) {
  if (!part.narrow || innerWidth >= NARROW) return part.figure;
  if (!part.fitted) {
    const {layout, data, whole} = part.narrow;
    part.fitted = {layout, data: whole ? data : data.map((trace, i) => ({...part.figure.data[i], ...trace}))};
    for (const trace of part.fitted.data) {
      for (const [key, value] of Object.entries(trace)) if (value === null) delete trace[key];
      unfold(trace);
    }
  }
  return part.fitted;
}

// Calls `redraw` when the window becomes narrow or wide, or when what `form` says of it changes otherwise. Screenshots
// and rotating phones change it for a moment only.
function whenReshaped(redraw, form = () => innerWidth < NARROW) {
  let before = form(), waiting = null;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (before === form()) return;
      before = form();
      redraw();
    }, 200);
  });
}

// The heading is HTML, so that it wraps with the window; a saved picture gets it back as plotly's title.
function drawFigure(place, figure, common, dark, paper = 0) {
  const {data, layout} = themed(figure, dark, common);
  layout.height -= layout.margin.t - common.top;
  layout.margin.t = common.top;
  layout.title = {text: ""};
  if (paper) Object.assign(layout, {width: paper, paper_bgcolor: "#fff", plot_bgcolor: "#fff"});
  else layout.autosize = true;
  place.classList.add("drawn");
  // A token such as $x$ is text, not a formula.
  return Plotly.react(place, data, layout, {responsive: !paper, displayModeBar: false, typesetMath: false});
}

function saveText(text, name) {
  const href = URL.createObjectURL(new Blob([text], {type: "text/csv"})), link = make("a", "", {href, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

// `part` has a name, a figure and its numbers as csv; `kind` is png, svg or csv.
function saveFigure(part, kind, common, dark) {
  if (kind === "csv") return saveText(part.csv, part.name + ".csv");
  const made = themed(part.figure, dark, common), size = {width: 1100, height: made.layout.height, scale: 2};
  return Plotly.downloadImage(made, {format: kind, filename: part.name, ...size});
}
