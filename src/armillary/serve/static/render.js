// Blocks of a room as elements of the page. Used by the page itself and by a room that was saved as one file.
// Titles and captions are set as text; HTML comes from the package's views, which escape what models contain.
"use strict";

const SAVED = ["png", "svg", "csv"];
const figures = new Set();

function heading(block) {
  const made = [];
  if (block.title) made.push(make("h3", block.title));
  if (block.caption) made.push(make("p", block.caption, {class: "caption soft"}));
  return made;
}

function saves(part) {
  const row = make("div", "save as ", {class: "save"});
  for (const kind of SAVED) {
    const button = make("button", kind, {type: "button", "aria-label": `save ${part.name} as ${kind}`});
    button.addEventListener("click", () => saveFigure(part, kind, common(), night.matches));
    row.append(button);
  }
  return row;
}

// The page sets what all figures share before it draws the first.
let shared = null;
const common = () => shared;

// The drawing library is the last script to arrive; what is drawn before waits for it.
const arrived = new Promise(done => {
  if (window.Plotly) done();
  else document.addEventListener("DOMContentLoaded", done);
});

function sketch(place, part) {
  const frames = [...(part.figure.frames ?? []), ...(part.narrow?.frames ?? [])];
  const drawn = [part.figure.data, ...frames.map(frame => frame.data)];
  for (const data of drawn) for (const trace of data) unfold(trace);
  const draw = () => arrived.then(() => place.isConnected
    ? drawFigure(place, fitting(part), common(), night.matches) : null);
  const entry = {place, part, draw};
  figures.add(entry);
  return entry;
}

// Frames what was chosen on a map: a cell, or a whole row where only the row is chosen.
function markChosen(entry, values) {
  const {pick} = entry.part, figure = fitting(entry.part);
  if (!pick) return;
  const at = Object.fromEntries(Object.entries(pick).map(([field, of]) => [of, Number(values[field])]));
  const before = JSON.stringify(figure.layout.shapes ?? []);
  figure.layout.shapes = figure.data.filter(trace => trace.type === "heatmap").map(trace => ({
    type: "rect", yref: trace.yaxis ?? "y", y0: at.row - .5, y1: at.row + .5, line: {color: "#D55E00", width: 2.5},
    ...("column" in at ? {xref: trace.xaxis ?? "x", x0: at.column - .5, x1: at.column + .5}
      : {xref: `${trace.xaxis ?? "x"} domain`, x0: 0, x1: 1}),
  }));
  if (before !== JSON.stringify(figure.layout.shapes)) entry.draw();
}

function figureBlock(block, place, pick) {
  const frame = make("div", "", {class: "figure-frame"});
  const drawing = make("div", "", {class: "figure", role: "img", "aria-label": `figure: ${block.title}`});
  frame.append(drawing);
  const [title, ...rest] = heading(block);
  const entry = sketch(drawing, block);
  entry.size = () => {
    const {height, margin} = fitting(block).layout;
    drawing.style.height = `${height - margin.t + common().top}px`;
  };
  entry.size();
  const steps = block.figure.frames ? player(block, entry, title) : null;
  place.append(...[title, ...rest, steps?.row, frame, saves(block)].filter(Boolean));
  steps?.show(block.start ?? 0);
  entry.draw().then(drawn => {
    if (drawn && block.pick && pick) drawing.on("plotly_click", event => {
      const [row, column] = event.points[0].pointIndex;
      const where = {row, column};
      pick(Object.fromEntries(Object.entries(block.pick).map(([field, of]) => [field, where[of]])));
    });
  });
  return steps?.stop;
}

// A slider and a play button for a figure with frames; a frame replaces the figure's traces.
function player(block, entry, title) {
  const {frames} = block.figure, row = make("div", "", {class: "player"});
  const button = make("button", "▶ play", {type: "button"});
  const slider = make("input", "", {type: "range", min: 0, max: frames.length - 1, step: 1, "aria-label": block.slider});
  const output = make("output");
  let playing = null;
  const show = at => {
    slider.value = at;
    output.textContent = frames[at].name;
    slider.setAttribute("aria-valuetext", frames[at].name);
    block.figure.data = frames[at].data;
    if (block.narrow?.frames) block.fitted = {layout: block.narrow.layout, data: block.narrow.frames[at].data};
    const said = frames[at].layout?.title?.text;
    if (said && title) title.textContent = said.replaceAll("<br>", " ");
    entry.draw();
  };
  const stop = () => { clearInterval(playing); playing = null; button.textContent = "▶ play"; };
  button.addEventListener("click", () => {
    if (playing) return stop();
    button.textContent = "❚❚ pause";
    let at = Number(slider.value) >= frames.length - 1 ? -1 : Number(slider.value);
    playing = setInterval(() => { at += 1; show(at); if (at >= frames.length - 1) stop(); }, 5000 / frames.length);
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  row.append(button, slider, output);
  return {row, show, stop};
}

function pairBlock(block, place, pick) {
  const row = make("div", "", {class: "pair"}), ends = [];
  place.append(row);
  for (const one of block.blocks) {
    const half = make("div");
    row.append(half);
    const end = KINDS[one.kind](one, half, pick);
    if (typeof end === "function") ends.push(end);
  }
  return () => ends.forEach(end => end());
}

function htmlBlock(block, place) {
  const body = make("div", "", {class: "html"});
  body.innerHTML = block.html;
  place.append(...heading(block), body);
  for (const wide of all(".wide", body)) wide.tabIndex = 0;
  return body;
}

// A click that opens another tab or window is the browser's.
const elsewhere = event => event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;

function ledgerBlock(block, place, pick) {
  const body = htmlBlock(block, place);
  all("table.ledger", body).forEach(ledger);
  if (!pick) return;
  for (const link of all("tr[data-id] a", body)) {
    const claim = link.closest("tr").dataset.id;
    // The address is written when it is needed: it names what is chosen then.
    const write = () => { link.href = pick.address({claim}); };
    for (const kind of ["pointerdown", "focus"]) link.addEventListener(kind, write);
    link.addEventListener("click", event => {
      if (elsewhere(event)) return;
      event.preventDefault();
      pick({claim});
    });
  }
}

// A claim in full, as the report shows it.
function articleBlock(block, place) {
  const body = htmlBlock(block, place), {part} = block;
  for (const drawing of all(".figure", body)) {
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", `figure: ${body.querySelector("h3")?.textContent ?? part.name}`);
    sketch(drawing, part).draw();
  }
  for (const button of all(".save button", body)) {
    button.addEventListener("click", () => saveFigure(part, button.value, common(), night.matches));
  }
  for (const details of all("details.paged", body)) details.addEventListener("toggle", () =>
    details.open && paged(details, part.tables[details.dataset.table], part.name));
}

function travelBlock(block, place) {
  const body = make("div", "", {class: "html"});
  body.innerHTML = block.html;
  place.append(body);
  const globe = travel(body.querySelector(".travel"), block.data, body);
  return () => globe.end();
}

const KINDS = {figure: figureBlock, html: htmlBlock, ledger: ledgerBlock, article: articleBlock, travel: travelBlock,
  pair: pairBlock};

// Shows blocks in a place; `pick` is called with fields that a click chooses. Returns what clears the place.
function render(place, blocks, pick = null) {
  const ends = [];
  place.replaceChildren();
  for (const block of blocks) {
    const end = KINDS[block.kind]?.(block, place, pick);
    if (typeof end === "function") ends.push(end);
  }
  return () => {
    ends.forEach(end => end());
    for (const entry of [...figures]) if (place.contains(entry.place)) {
      window.Plotly?.purge(entry.place);
      figures.delete(entry);
    }
    place.replaceChildren();
  };
}

night.addEventListener("change", () => { for (const entry of figures) entry.draw(); });
