// A sentence's words on the globe, rotated by hand and played by layer. Canvas, no WebGL: a few thousand lines.
// `keys`: where arrow keys are heard; a page with more than one globe gives each its own element. Returns its end.
function travel(root, data, keys = document) {
  const canvas = root.querySelector("canvas"), tip = root.querySelector(".tip");
  const slider = root.querySelector("input"), playing = root.querySelector(".layers button");
  const output = root.querySelector("output"), card = root.querySelector(".card");
  const panel = root.querySelector(".angles svg");
  const dark = matchMedia("(prefers-color-scheme: dark)"), still = matchMedia("(prefers-reduced-motion: reduce)");
  const LAST = data.labels.length - 1, SECONDS = 5, PIECES = 12, FADED = 0.13;
  const state = {turn: data.view, time: LAST, word: data.word, hover: null, play: null};
  const ink = name => data.inks[name][dark.matches ? 1 : 0];

  // ---- geometry -------------------------------------------------------------------------------------------

  const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  const length = a => Math.sqrt(dot(a, a));
  const mix = (a, b, s, t) => [s * a[0] + t * b[0], s * a[1] + t * b[1], s * a[2] + t * b[2]];
  const turned = p => state.turn.map(row => dot(row, p));
  const times = (a, b) => a.map(row => [0, 1, 2].map(j => row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j]));

  // A point of the arc from a to b; `angle` is the true one if a and b are projections inside the globe.
  function along(a, b, t, angle) {
    if (angle === null) angle = 2 * Math.atan2(length(mix(a, b, 1, -1)), length(mix(a, b, 1, 1)));
    if (angle < 1e-6 || angle > Math.PI - 1e-6) return mix(a, b, 1 - t, t);
    return mix(a, b, Math.sin((1 - t) * angle) / Math.sin(angle), Math.sin(t * angle) / Math.sin(angle));
  }
  const trueAngle = (word, step) => data.span ? data.moved[word][step] * Math.PI / 180 : null;
  const arcs = data.points.map((path, word) => path.slice(1).map((b, step) =>
    Array.from({length: PIECES + 1}, (_, i) => along(path[step], b, i / PIECES, trueAngle(word, step)))));
  const rings = [[0, 1], [0, 2], [1, 2]].map(([i, j]) => {
    const a = data.corners[i], rest = mix(data.corners[j], a, 1, -dot(a, data.corners[j])), size = length(rest);
    if (size < 1e-9) return [];
    const at = k => [Math.cos(k * Math.PI / 48), Math.sin(k * Math.PI / 48) / size];
    return Array.from({length: 97}, (_, k) => mix(a, rest, ...at(k)));
  });
  function position(word, time) {
    const step = Math.min(Math.floor(time), LAST - 1), path = data.points[word];
    return LAST === 0 ? path[0] : along(path[step], path[step + 1], time - step, trueAngle(word, step));
  }

  // ---- pens: the same strokes on the screen and in a saved picture ----------------------------------------

  function screenPen(context, font) {
    const set = look => {
      context.globalAlpha = look.alpha ?? 1;
      context.lineWidth = look.width ?? 1;
      context.lineCap = context.lineJoin = "round";
    };
    const finish = look => {
      if (look.fill) { context.fillStyle = look.fill; context.fill(); }
      if (look.stroke) { context.strokeStyle = look.stroke; context.stroke(); }
    };
    return {
      path(points, look, closed) {
        set(look);
        context.beginPath();
        points.forEach(([x, y], i) => i ? context.lineTo(x, y) : context.moveTo(x, y));
        if (closed) context.closePath();
        finish(look);
      },
      circle(x, y, r, look) { set(look); context.beginPath(); context.arc(x, y, r, 0, 7); finish(look); },
      globe(x, y, r) {
        const shade = context.createRadialGradient(x - .28 * r, y - .4 * r, 0, x - .28 * r, y - .4 * r, 1.6 * r);
        [["lit", 0], ["body", .55], ["edge", 1]].forEach(([name, at]) => shade.addColorStop(at, ink(name)));
        this.circle(x, y, r, {fill: shade});
      },
      text(text, x, y, look) {
        set(look);
        context.font = `${look.style ?? ""} ${look.weight ?? 400} ${look.size}px ${font}`;
        context.textAlign = look.align ?? "left";
        context.textBaseline = "middle";
        context.lineWidth = 3.5;
        context.strokeStyle = ink("ground");
        context.globalAlpha = .8;
        context.strokeText(text, x, y);
        context.globalAlpha = look.alpha ?? 1;
        context.fillStyle = look.fill;
        context.fillText(text, x, y);
      },
      width(text, look) {
        context.font = `${look.style ?? ""} ${look.weight ?? 400} ${look.size}px ${font}`;
        return context.measureText(text).width;
      },
    };
  }
  const escaped = text => text.replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
  function paperPen(measure) {
    const out = [], at = n => n.toFixed(1);
    const looks = look => `fill="${look.fill ?? "none"}" stroke="${look.stroke ?? "none"}" `
      + `stroke-width="${look.width ?? 1}" opacity="${(look.alpha ?? 1).toFixed(2)}" `
      + `stroke-linecap="round" stroke-linejoin="round"`;
    return {
      out,
      path(points, look, closed) {
        const line = points.map(([x, y]) => at(x) + " " + at(y)).join("L");
        out.push(`<path ${looks(look)} d="M${line}${closed ? "Z" : ""}"/>`);
      },
      circle(x, y, r, look) { out.push(`<circle cx="${at(x)}" cy="${at(y)}" r="${at(r)}" ${looks(look)}/>`); },
      globe(x, y, r) {
        const shades = [["lit", 0], ["body", .55], ["edge", 1]];
        const stops = shades.map(([name, at]) => `<stop offset="${at}" stop-color="${ink(name)}"/>`);
        out.push(`<defs><radialGradient id="ball" cx=".36" cy=".3" r=".8">${stops.join("")}</radialGradient></defs>`);
        this.circle(x, y, r, {fill: "url(#ball)"});
      },
      text(text, x, y, look) {
        const anchor = {center: "middle", right: "end"}[look.align] ?? "start";
        out.push(`<text x="${at(x)}" y="${at(y + look.size * .36)}" font-size="${look.size}" `
          + `font-weight="${look.weight ?? 400}" font-style="${look.style || "normal"}" text-anchor="${anchor}" `
          + `fill="${look.fill}" opacity="${look.alpha ?? 1}" stroke="${ink("ground")}" stroke-width="3.5" `
          + `stroke-opacity=".8" paint-order="stroke">${escaped(text)}</text>`);
      },
      width: measure,
    };
  }

  // ---- the scene ------------------------------------------------------------------------------------------

  const strength = word => state.word === null || state.word === word ? 1 : FADED;
  const shade = step => data.layers[Math.round(step / Math.max(1, LAST) * (data.layers.length - 1))];
  const tint = (word, step) => ink(data.layered ? shade(step) : `w${word}`);
  const wordInk = word => data.layered ? ink("ink") : tint(word, LAST);
  function scene(pen, cx, cy, r) {
    const flatten = p => [cx + r * p[0], cy - r * p[1]];
    const sides = [[], []];  // what is behind the globe's centre, and what is in front
    for (const ring of rings) split(ring.map(turned), (line, front) =>
      sides[front].push(() => pen.path(line.map(flatten), {stroke: ink("accent"), alpha: front ? .55 : .22})));
    const spots = [];
    arcs.forEach((path, word) => {
      path.forEach((line, step) => {
        const gone = Math.max(0, Math.min(1, state.time - step));
        if (!gone) return;
        const shown = line.slice(0, Math.floor(gone * PIECES) + 1);
        if (gone < 1) shown.push(position(word, state.time));
        const depth = (step + 1) / LAST, look = {stroke: tint(word, step + 1), width: 1 + 1.4 * depth};
        split(shown.map(turned), (piece, front) => sides[front].push(() =>
          pen.path(piece.map(flatten), {...look, alpha: strength(word) * (.4 + .6 * depth) * (front ? 1 : .3)})));
      });
      data.points[word].forEach((point, step) => {
        if (step > state.time + 1e-6) return;
        const p = turned(point), [x, y] = flatten(p), size = .86 + .14 * p[2], front = p[2] >= 0 ? 1 : 0;
        spots.push({word, step, x, y, z: p[2]});
        if (step === LAST) return;
        const alpha = strength(word) * (front ? 1 : .3), colour = tint(word, Math.max(1, step));
        sides[front].push(() => step ? pen.circle(x, y, 2 * size, {fill: colour, alpha})
          : pen.circle(x, y, 4.8 * size, {fill: ink("ground"), stroke: colour, width: 1.9, alpha}));
      });
      const goal = turned(data.targets[word]), front = goal[2] >= 0 ? 1 : 0;
      sides[front].push(() => pen.path(target(goal, r).map(flatten), {stroke: ink("ground"),
        fill: data.layered ? ink("accent") : tint(word, LAST), alpha: strength(word) * (front ? 1 : .3)}, true));
      const head = turned(position(word, state.time)), ahead = head[2] >= 0 ? 1 : 0, [x, y] = flatten(head);
      if (state.time > 0 || LAST === 0) sides[ahead].push(() => pen.circle(x, y, 5.2 * (.86 + .14 * head[2]),
        {fill: tint(word, state.time), alpha: strength(word) * (ahead ? 1 : .3)}));
    });
    pen.globe(cx, cy, r);
    sides[0].forEach(draw => draw());
    pen.circle(cx, cy, r, {fill: ink("ground"), alpha: .2});
    pen.circle(cx, cy, r, {stroke: ink("accent"), width: 1.2, alpha: .8});
    sides[1].forEach(draw => draw());
    degrees(pen, flatten);
    if (state.hover) ringed(pen, spots);
    names(pen, flatten, cx, cy, r);
    return spots;
  }
  function split(line, draw) {
    let start = 0;
    for (let i = 1; i < line.length; i++) {
      const front = line[i - 1][2] + line[i][2] >= 0 ? 1 : 0;
      const next = i + 1 < line.length && line[i][2] + line[i + 1][2] >= 0 ? 1 : 0;
      if (i + 1 === line.length || next !== front) { draw(line.slice(start, i + 1), front); start = i; }
    }
  }
  function target(p, r) {
    const count = data.reads ? 10 : 4, size = (.88 + .12 * p[2]) / r;
    return Array.from({length: count}, (_, i) => {
      const reach = size * (data.reads ? (i % 2 ? 4 : 9.5) : 6.5), angle = Math.PI / 2 + 2 * Math.PI * i / count;
      return [p[0] + reach * Math.cos(angle), p[1] + reach * Math.sin(angle)];
    });
  }
  function degrees(pen, flatten) {
    for (const side of data.sides) {
      side.marks.forEach((p, i) => {
        const q = turned(p), [x, y] = flatten(q);
        pen.circle(x, y, i % 3 === 2 ? 3 : 1.7, {fill: ink("accent"), alpha: q[2] >= 0 ? .85 : .3});
      });
      const q = turned(side.middle), [x, y] = flatten(q);
      if (q[2] >= 0) pen.text(`${Math.round(side.degrees)}°`, x + 9, y - 8, {size: 14, weight: 650, fill: ink("accent")});
    }
  }
  function ringed(pen, spots) {
    const found = spots.find(s => s.word === state.hover.word && s.step === state.hover.step);
    if (found) pen.circle(found.x, found.y, 8, {stroke: ink("ink"), width: 1.4});
  }

  // Labels beside their points, without overlap; a label without room is left out and appears on hover.
  const AROUND = [[1, 0], [-1, 0], [0, -1], [0, 1]];
  for (const y of [.9, 1.8]) AROUND.push([.8, -y], [-.8, -y], [.8, y], [-.8, y]);
  function names(pen, flatten, cx, cy, r) {
    const boxes = [], wanted = [], stars = new Set();
    const want = (p, text, gap, look, keep) => {
      const q = turned(p);
      if (q[2] < -.05) return;
      const [x, y] = flatten(q);
      if (keep) boxes.push([x - 5, y - 5, x + 5, y + 5]);
      wanted.push({x, y, text, gap, look});
    };
    data.words.forEach((word, i) => {
      if (strength(i) < 1) return;
      want(position(i, state.time), word.label, 10, {size: 14, weight: 650, fill: wordInk(i)}, true);
    });
    data.words.forEach((word, i) => {
      if (strength(i) < 1 || word.nextLabel === null || stars.has(word.nextLabel)) return;
      stars.add(word.nextLabel);
      want(data.targets[i], word.nextLabel, 11, {size: 12.5, style: "italic", fill: wordInk(i)}, true);
    });
    const one = data.words.length === 1 ? 0 : state.word;
    if (one !== null) data.readings[one].forEach((words, step) => {
      const before = step ? data.readings[one][step - 1] : [];
      if (step <= state.time && words.length && words[0][0] !== (before[0] ?? [])[0]) {
        want(data.points[one][step], words[0][0], 6, {size: 11.5, fill: ink("soft")}, false);
      }
    });
    for (const {x, y, text, gap, look} of wanted) {
      const width = pen.width(text, look), height = look.size * 1.2;
      for (const [dx, dy] of AROUND) {
        const px = x + dx * gap, py = y + dy * (gap + (dx ? 0 : height / 2));
        const left = dx > 0 ? px : dx < 0 ? px - width : px - width / 2;
        const box = [left - 2, py - height / 2, left + width + 2, py + height / 2];
        const inside = box[0] >= cx - r - 14 && box[2] <= cx + r + 14 && box[1] >= cy - r - 14 && box[3] <= cy + r + 14;
        if (!inside || boxes.some(b => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3])) continue;
        boxes.push(box);
        pen.text(text, px, py, {...look, align: dx > 0 ? "left" : dx < 0 ? "right" : "center"});
        break;
      }
    }
  }

  // ---- the page around it ---------------------------------------------------------------------------------

  const font = getComputedStyle(root).fontFamily, context = canvas.getContext("2d");
  let spots = [], waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
  }
  function paint() {
    const size = canvas.clientWidth, scale = devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(size * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    spots = scene(screenPen(context, font), size / 2, size / 2, size / 2 - 14);
    const step = Math.round(state.time);
    slider.value = step;
    slider.setAttribute("aria-valuetext", data.labels[step]);
    output.textContent = data.labels[step];
    tell(step);
    mark(step);
  }
  const focus = () => state.hover ? state.hover.word : state.word ?? data.words.length - 1;
  const part = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const percent = p => p < .0005 ? "<\u202f0.1\u202f%" : `${(100 * p).toFixed(p >= .0995 ? 0 : 1)}\u202f%`;
  function facts(word, step) {
    const parts = [], {next, predicted} = data.words[word], share = data.shown[word][step];
    if (step) parts.push(`moved ${data.moved[word][step - 1].toFixed(0)}°`);
    parts.push(`${data.own[word][step].toFixed(0)}° from itself`);
    if (next !== null) {
      const name = `${predicted ? "its prediction" : "the next word"} ‘${next}’`;
      const p = percent(data.probability[word][step]);
      parts.push(`${data.next[word][step].toFixed(0)}° from ${name}, probability ${p}`);
    }
    if (share !== null) parts.push(`the drawing holds ${(100 * share).toFixed(0)}\u202f% of its length`);
    return parts.join(" · ");
  }
  let shownKey = "";
  function tell(step) {
    const word = focus(), at = state.hover ? state.hover.step : step, key = `${word} ${at} ${dark.matches}`;
    if (key === shownKey) return;
    shownKey = key;
    const head = part("h2"), table = part("table"), body = part("tbody");
    head.append(part("span", `‘${data.words[word].text}’`), part("span", ` ${data.labels[at]}`, "soft"));
    head.firstChild.style.color = data.layered ? "" : tint(word, LAST);
    for (const [text, angle, p] of data.readings[word][at]) {
      const row = part("tr"), bar = part("td", undefined, "bar"), fill = part("span");
      fill.style.width = `${(100 * (p === null ? Math.max(0, 1 - angle / 90) : p)).toFixed(1)}%`;
      bar.append(fill);
      const numbers = [p === null ? "" : percent(p), `${angle.toFixed(0)}°`].map(number => part("td", number, "number"));
      row.append(part("td", text, "word"), bar, ...numbers);
      body.append(row);
    }
    table.append(body);
    const what = data.reads ? "It reads as (most probable next words, with their angles):" : "Nearest words, by angle:";
    card.replaceChildren(head, part("p", facts(word, at), "soft"), part("p", what, "soft"), table);
  }
  const SVG = "http://www.w3.org/2000/svg", cursor = document.createElementNS(SVG, "g");
  panel.append(cursor);
  const {left, right, top: upper, bottom, width: panelWidth, height: panelHeight, most} = data.panel;
  const panelX = s => left + (panelWidth - left - right) * s / Math.max(1, LAST);
  const panelY = d => upper + (panelHeight - upper - bottom) * (1 - d / most);
  function mark(step) {
    const add = (tag, look) => {
      const element = document.createElementNS(SVG, tag);
      for (const [name, value] of Object.entries(look)) element.setAttribute(name, value);
      cursor.append(element);
    };
    cursor.replaceChildren();
    // The cursor follows the chosen word, or the bold lines.
    const time = state.time, x = panelX(time), word = state.hover ? state.hover.word : state.word;
    const [own, next] = word === null ? data.bold : [data.own[word], data.next[word]];
    add("path", {d: `M${x} ${upper}V${panelHeight - bottom}`, stroke: ink("ink"), opacity: .45});
    for (const [angles, colour] of [[own, "second"], [next, "accent"]]) {
      if (angles[0] === null) continue;
      if (word !== null) add("path", {d: "M" + angles.map((a, s) => `${panelX(s)} ${panelY(a)}`).join("L"),
        stroke: ink(colour), fill: "none", "stroke-width": 2, "stroke-dasharray": "5 3"});
      const s = Math.floor(time), at = angles[s] + (time - s) * ((angles[s + 1] ?? angles[s]) - angles[s]);
      add("circle", {cx: x, cy: panelY(at), r: 4, fill: ink("ground"), stroke: ink(colour), "stroke-width": 2});
    }
  }
  const chips = [...root.querySelectorAll(".sentence button")];
  function paintWords() {
    chips.forEach((chip, i) => {
      chip.setAttribute("aria-pressed", String(state.word === i));
      chip.style.setProperty("--tint", wordInk(i));
      chip.style.opacity = strength(i) < 1 ? .7 : 1;
    });
  }
  function follow(word) {
    state.word = word;
    paintWords();
    if (word !== null) face(word);
    draw();
  }
  // Turns the globe until a word's end and its target are in front; what is well in front already stays.
  function face(word) {
    const goals = [position(word, LAST), data.targets[word]];
    if (goals.every(p => turned(p)[2] > .3)) return;
    const middle = turned(mix(goals[0], goals[1], 1, 1)), size = length(middle);
    const flat = Math.hypot(middle[0], middle[1]);
    if (size < 1e-6 || flat < 1e-6) return;
    const axis = [middle[1] / flat, -middle[0] / flat], angle = Math.acos(middle[2] / size), start = state.turn;
    const at = share => { state.turn = times(about(axis, angle * share), start); draw(); };
    if (still.matches) return at(1);
    let first = null;
    const tick = now => {
      const share = Math.min(1, (now - (first ??= now)) / 400);
      at(share * share * (3 - 2 * share));
      if (share < 1 && state.word === word) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }
  // The rotation by an angle about an axis in the plane of the screen.
  function about([x, y], angle) {
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    const xy = x * y * (1 - c);
    return [[c + x * x * (1 - c), xy, y * s], [xy, c + y * y * (1 - c), -x * s], [-y * s, x * s, c]];
  }
  function go(time) { stop(); state.time = Math.max(0, Math.min(LAST, time)); draw(); }

  // ---- play, turn, point ----------------------------------------------------------------------------------

  function stop() {
    if (state.play !== null) cancelAnimationFrame(state.play);
    state.play = null;
    playing.textContent = "▶ play";
  }
  function play() {
    if (state.play !== null) return stop();
    if (state.time >= LAST) state.time = 0;
    playing.textContent = "❚❚ pause";
    let last = null, exact = state.time;
    const tick = now => {
      exact = Math.min(LAST, exact + (now - (last ?? now)) / 1000 * LAST / SECONDS);
      last = now;
      state.time = still.matches ? Math.floor(exact) : exact;
      paint();
      if (exact >= LAST) return stop();
      state.play = requestAnimationFrame(tick);
    };
    state.play = requestAnimationFrame(tick);
  }
  function spin(dx, dy) {
    const [c, s, k, z] = [Math.cos(dx), Math.sin(dx), Math.cos(dy), Math.sin(dy)];
    state.turn = times([[1, 0, 0], [0, k, -z], [0, z, k]], times([[c, 0, s], [0, 1, 0], [-s, 0, c]], state.turn));
    draw();
  }
  function under(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = event.pointerType === "touch" ? 24 : 13;
    for (const spot of spots) {
      if (strength(spot.word) < 1) continue;
      // Points in front win over points behind the globe.
      const apart = Math.hypot(spot.x - x, spot.y - y) + (spot.z < 0 ? 6 : 0);
      if (apart < least) [best, least] = [spot, apart];
    }
    return best;
  }
  function point(found) {
    state.hover = found && {word: found.word, step: found.step};
    tip.hidden = !found;
    canvas.style.cursor = found ? "pointer" : "";
    if (found) {
      const {word, step} = found, words = data.readings[word][step];
      const readings = words.map(([text, angle, p]) => `${text} ${p === null ? `${angle.toFixed(0)}°` : percent(p)}`);
      tip.replaceChildren(part("b", `‘${data.words[word].text}’ ${data.labels[step]}`),
        part("span", facts(word, step), "soft"),
        part("span", `${data.reads ? "reads as" : "near"} ${readings.join(" · ")}`));
      const left = Math.min(found.x + 14, canvas.clientWidth - tip.offsetWidth - 4);
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${found.y > canvas.clientHeight / 2 ? found.y - tip.offsetHeight - 14 : found.y + 14}px`;
    }
    draw();
  }
  let grip = null;
  canvas.addEventListener("pointerdown", event => {
    grip = {x: event.clientX, y: event.clientY, far: 0};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    if (!grip) {
      const found = under(event), {word, step} = state.hover ?? {};
      const same = found && found.word === word && found.step === step;
      return same || (!found && !state.hover) ? undefined : point(found);
    }
    const [dx, dy] = [event.clientX - grip.x, event.clientY - grip.y], size = canvas.clientWidth / 2;
    grip = {x: event.clientX, y: event.clientY, far: grip.far + Math.hypot(dx, dy)};
    if (grip.far > 3) { if (state.hover) point(null); spin(dx / size, dy / size); }
  });
  canvas.addEventListener("pointerup", event => {
    if (grip && grip.far <= 3) {
      const found = under(event);
      follow(found ? found.word : null);
      if (found && event.pointerType === "touch") point(found);
    }
    grip = null;
  });
  canvas.addEventListener("pointercancel", () => { grip = null; });
  canvas.addEventListener("pointerleave", () => { if (state.hover) point(null); });
  slider.addEventListener("input", () => go(Number(slider.value)));
  playing.addEventListener("click", play);
  chips.forEach((chip, i) => chip.addEventListener("click", () => follow(state.word === i ? null : i)));
  const fromPanel = event => {
    const box = panel.getBoundingClientRect(), x = (event.clientX - box.left) * panelWidth / box.width;
    go(Math.round((x - left) / (panelWidth - left - right) * LAST));
  };
  panel.addEventListener("pointerdown", fromPanel);
  panel.addEventListener("pointermove", event => { if (event.buttons) fromPanel(event); });
  const life = new AbortController(), {signal} = life;
  keys.addEventListener("keydown", event => {
    const tag = event.target.tagName, at = Math.round(state.time), count = data.words.length;
    if (event.ctrlKey || event.metaKey || event.altKey || tag === "INPUT" || tag === "SUMMARY") return;
    if (tag === "BUTTON" && (event.key === " " || event.key === "Enter")) return;
    const nudge = {ArrowLeft: [-.12, 0], ArrowRight: [.12, 0], ArrowUp: [0, -.12], ArrowDown: [0, .12]}[event.key];
    const act = event.shiftKey && nudge ? () => spin(...nudge) : {
      ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(LAST), " ": play,
      ArrowUp: () => follow(((state.word ?? count) + count - 1) % count),
      ArrowDown: () => follow(((state.word ?? -1) + 1) % count),
      Escape: () => { point(null); follow(null); },
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }, {signal});

  // ---- saving ---------------------------------------------------------------------------------------------

  function paper() {
    const pen = paperPen((text, look) => screenPen(context, font).width(text, look)), [width, size] = [1120, 600];
    const fold = (text, size, weight, colour) => {
      const lines = [""];
      for (const word of text.split(" ")) {
        const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
        if (lines.at(-1) && pen.width(longer, {size, weight}) > width - 60) lines.push(word);
        else lines[lines.length - 1] = longer;
      }
      return lines.map(line => [line, size, weight, colour]);
    };
    const heads = [...fold(data.title, 20, 650, "ink"), ...fold(data.caption, 13, 400, "soft")];
    let y = 14;
    pen.path([[0, 0], [width, 0], [width, 4000], [0, 4000]], {fill: ink("ground")}, true);
    for (const [line, size, weight, colour] of heads) {
      pen.text(line, 26, y + size * .75, {size, weight, fill: ink(colour)});
      y += size * 1.45;
    }
    scene(pen, 318, y + 40 + size / 2 - 28, size / 2 - 28);
    data.scores.forEach((line, i) => pen.text(line, 26, y + size + 14 + 16 * i,
      {size: 12, weight: i ? 400 : 650, fill: ink(i ? "soft" : "ink")}));
    pen.text(data.labels[Math.round(state.time)], 26, y + 40, {size: 13, weight: 650, fill: ink("soft")});
    const copy = panel.cloneNode(true);
    for (const item of copy.querySelectorAll("[class]")) for (const name of item.classList) {
      const kind = {s: "stroke", f: "fill"}[name[0]];
      if (kind) item.setAttribute(kind, ink(name.slice(2)));
    }
    copy.querySelectorAll("[class]").forEach(item => item.removeAttribute("class"));
    copy.querySelectorAll("style, title").forEach(item => item.remove());
    const inner = new XMLSerializer().serializeToString(copy).replace(/^<svg[^>]*>|<\/svg>$/g, "");
    const height = Math.round(y + size + 14 + 16 * data.scores.length + 12);
    const box = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    return {height, width, text: `<svg xmlns="${SVG}" ${box} font-family="${escaped(font)}" font-size="12">`
      + `${pen.out.join("")}<g transform="translate(646 ${y + 50})">${inner}</g></svg>`};
  }
  function download(blob, kind) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `travel.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  function save(kind) {
    if (kind === "csv") return download(new Blob([data.csv], {type: "text/csv"}), kind);
    const {text, width, height} = paper(), blob = new Blob([text], {type: "image/svg+xml"});
    if (kind === "svg") return download(blob, kind);
    const image = new Image(), sheet = document.createElement("canvas");
    image.onload = () => {
      [sheet.width, sheet.height] = [2 * width, 2 * height];
      sheet.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
      URL.revokeObjectURL(image.src);
      sheet.toBlob(png => download(png, kind), "image/png");
    };
    image.src = URL.createObjectURL(blob);
  }
  root.querySelectorAll(".save button").forEach(button => button.addEventListener("click", () => save(button.value)));
  root.classList.add("alive");
  dark.addEventListener("change", () => { shownKey = ""; paintWords(); draw(); }, {signal});
  const sized = new ResizeObserver(draw);
  sized.observe(canvas);
  paintWords();
  paint();
  return {state, spots: () => spots, end() { stop(); life.abort(); sized.disconnect(); }};
}
