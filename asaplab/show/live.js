// The live pipeline: a canvas of bars, one row for each device and stream, fed with binary deltas.
// A bar is two float64 (start, end; seconds) and five int32 (row, kind, batch, layer, tokens).
const CAP = 65536, GUTTER = 160, AXIS = 24, FIELDS = 5;

const stores = new WeakMap(); // a model's bars outlive its views

function storeOf(model) {
  if (!stores.has(model)) {
    const store = { times: new Float64Array(2 * CAP), what: new Int32Array(FIELDS * CAP), count: 0, views: new Set() };
    stores.set(model, store);
    model.on("msg:custom", (message, buffers) => {
      if (message.clear) reset(store);
      if (buffers.length) append(store, buffers[0], buffers[1]);
    });
    model.on("change:bars", () => { reset(store); load(store, model.get("bars")); });
    load(store, model.get("bars"));
  }
  return stores.get(model);
}

function reset(store) {
  store.count = 0;
  store.first = Infinity; store.newest = -Infinity; store.started = null;
  for (const view of store.views) view();
}

function load(store, bytes) {
  if (store.count === 0) { store.first = Infinity; store.newest = -Infinity; }
  if (!bytes || !bytes.byteLength) return;
  const n = bytes.byteLength / (16 + 4 * FIELDS);
  const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  append(store, new DataView(copy, 0, 16 * n), new DataView(copy, 16 * n));
}

function append(store, timeView, whatView) {
  const slice = (v) => v.buffer.slice(v.byteOffset, v.byteOffset + v.byteLength);
  const times = new Float64Array(slice(timeView)), what = new Int32Array(slice(whatView));
  for (let i = 0; i < times.length / 2; i++) {
    const j = store.count % CAP;
    store.times[2 * j] = times[2 * i]; store.times[2 * j + 1] = times[2 * i + 1];
    for (let f = 0; f < FIELDS; f++) store.what[FIELDS * j + f] = what[FIELDS * i + f];
    if (times[2 * i] < store.first) store.first = times[2 * i];
    if (times[2 * i + 1] > store.newest) store.newest = times[2 * i + 1];
    store.count++;
  }
  for (const view of store.views) view();
}

function element(tag, parent, props) {
  const made = Object.assign(document.createElement(tag), props || {});
  parent.appendChild(made);
  return made;
}

function render({ model, el }) {
  const store = storeOf(model);
  const root = element("div", el, { className: "asap-live" });
  const bar = element("div", root, { className: "asap-live-bar" });
  const title = element("b", bar, { textContent: model.get("title") });
  const pause = element("button", bar, { textContent: "pause", title: "hold the picture still (space)" });
  const back = element("button", bar, { textContent: "follow", title: "go back to the newest bars (double click)" });
  const colour = element("select", bar, { title: "what a colour means" });
  for (const name of ["batch", "part"]) element("option", colour, { textContent: "colour by " + name, value: name });
  const status = element("span", bar, { className: "asap-live-status" });
  const canvas = element("canvas", root, { tabIndex: 0 });
  const legend = element("div", root, { className: "asap-live-legend" });
  const tip = element("div", root, { className: "asap-live-tip" });
  const g = canvas.getContext("2d");
  let end = null, span = model.get("window_s"); // end null: follow
  let shown = [], frames = 0, asked = false, drag = null, started = performance.now(), stopped = false, visible = true;

  const rows = () => model.get("rows");
  const placeOf = (row) => model.get("places")[row] ?? row; // rows keep their number, their place follows the order of names
  const height = () => AXIS + Math.max(1, rows().length) * model.get("row_px");
  function size() {
    const ratio = window.devicePixelRatio || 1, width = Math.max(320, root.clientWidth);
    canvas.style.width = "100%"; canvas.style.height = height() + "px";
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height() * ratio);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  // in slow motion the clock runs by itself; live it is the newest bar's end
  function now() {
    const speed = model.get("speed");
    if (!(speed > 0)) return store.newest;
    const window_s = Math.min(model.get("window_s"), store.newest - store.first), length = Math.max(store.newest - store.first - window_s, 1e-9);
    return store.first + window_s + (speed * (performance.now() - started) / 1e3) % length;
  }
  function ask() {
    if (asked || stopped || !visible) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); if (model.get("speed") > 0 && end === null) ask(); });
  }
  function draw() {
    const width = canvas.clientWidth || 320, right = end === null ? now() : end, left = right - span;
    const style = getComputedStyle(root), ink = style.color, scale = (width - GUTTER) / span;
    const kinds = model.get("kinds"), colours = model.get("colours"), series = model.get("series"), px = model.get("row_px");
    g.clearRect(0, 0, width, height());
    g.font = (px < 16 ? 11 : 12) + "px system-ui, sans-serif"; g.textBaseline = "middle"; g.textAlign = "right";
    rows().forEach((name, i) => {
      const y = placeOf(i) * px;
      g.globalAlpha = 0.06; g.fillStyle = ink; g.fillRect(GUTTER, y + 1, width - GUTTER, px - 2); // idle shows through
      g.globalAlpha = 1; g.fillText(name.length > 26 ? name.slice(0, 25) + "…" : name, GUTTER - 8, y + px / 2);
    });
    const groups = new Map(), byBatch = colour.value === "batch", first = Math.max(0, store.count - CAP);
    shown = [];
    for (let k = store.count - 1, missed = 0; k >= first && missed < 8192; k--) {
      const j = k % CAP, a = store.times[2 * j], b = store.times[2 * j + 1];
      if (b < left || a > right) { missed += b < left; continue; }
      const kind = store.what[FIELDS * j + 1], batch = store.what[FIELDS * j + 2], waits = kinds[kind].endsWith("wait") || kinds[kind] === "idle";
      const fill = byBatch && !waits ? series[((batch % series.length) + series.length) % series.length] : colours[kind];
      if (!groups.has(fill)) groups.set(fill, new Path2D());
      const x = GUTTER + (Math.max(a, left) - left) * scale, y = placeOf(store.what[FIELDS * j]) * px, w = Math.max((Math.min(b, right) - Math.max(a, left)) * scale, 0.6);
      groups.get(fill).rect(x, waits ? y + px * 0.3 : y + 2, w, waits ? px * 0.4 : px - 4); // waiting is a thin bar
      shown.push(x, w, j);
    }
    for (const [fill, path] of groups) { g.fillStyle = fill; g.fill(path); }
    axis(left, right, scale, width, ink);
    frames++;
    canvas.dataset.frames = frames; canvas.dataset.bars = shown.length / 3;
    status.textContent = `${shown.length / 3} bars, ${format(span)} wide${end === null ? "" : ", held"}`;
  }
  function axis(left, right, scale, width, ink) {
    const step = 10 ** Math.floor(Math.log10(span / 4)), by = span / step > 20 ? 5 * step : span / step > 8 ? 2 * step : step;
    g.textAlign = "center"; g.fillStyle = ink;
    if (!isFinite(left)) return;
    const zero = isFinite(store.first) ? store.first : 0;
    for (let t = Math.ceil((left - zero) / by) * by; t <= right - zero; t += by) {
      const x = GUTTER + (t + zero - left) * scale;
      g.globalAlpha = 0.15; g.fillRect(x, 0, 1, height() - AXIS); g.globalAlpha = 0.8;
      if (x < width - 20) g.fillText(format(t), x, height() - AXIS / 2);
    }
    g.globalAlpha = 1;
  }
  function format(t) { const a = Math.abs(t); return a >= 1 || a === 0 ? +t.toPrecision(4) + " s" : a >= 1e-3 ? +(t * 1e3).toPrecision(4) + " ms" : +(t * 1e6).toPrecision(3) + " µs"; }
  function explain() {
    const byBatch = colour.value === "batch", kinds = model.get("kinds"), colours = model.get("colours");
    legend.replaceChildren();
    kinds.forEach((kind, i) => {
      const waits = kind.endsWith("wait") || kind === "idle";
      if (byBatch && !waits) return;
      const entry = element("span", legend);
      element("i", entry).style.background = colours[i];
      entry.append(kind.replaceAll("_", " "));
    });
    if (byBatch) legend.append("every other colour is a batch; empty is idle");
  }
  function hold(at) { end = at; pause.textContent = end === null ? "pause" : "play"; model.set("paused", end !== null); model.save_changes(); ask(); }
  function zoom(factor, at) {
    const right = end === null ? now() : end, t = right - span * (1 - at);
    span = Math.min(3600, Math.max(1e-5, span * factor));
    end = t + span * (1 - at);
    hold(end);
  }
  pause.onclick = () => hold(end === null ? now() : null);
  back.onclick = () => { span = model.get("window_s"); started = performance.now(); hold(null); };
  canvas.ondblclick = back.onclick;
  colour.onchange = () => { explain(); ask(); };
  canvas.onkeydown = (e) => { if (e.key === " ") { e.preventDefault(); pause.onclick(); } if (e.key === "+") zoom(0.7, 0.5); if (e.key === "-") zoom(1 / 0.7, 0.5); };
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, (e.offsetX - GUTTER) / (canvas.clientWidth - GUTTER)); }, { passive: false });
  canvas.onpointerdown = (e) => { drag = { x: e.offsetX, end: end === null ? now() : end }; canvas.setPointerCapture(e.pointerId); };
  canvas.onpointerup = () => { drag = null; };
  canvas.onpointermove = (e) => {
    if (drag) { hold(drag.end - (e.offsetX - drag.x) * span / (canvas.clientWidth - GUTTER)); return; }
    const row = Math.floor(e.offsetY / model.get("row_px"));
    let hit = -1;
    for (let i = 0; i < shown.length && hit < 0; i += 3) if (placeOf(store.what[FIELDS * shown[i + 2]]) === row && e.offsetX >= shown[i] && e.offsetX <= shown[i] + shown[i + 1]) hit = shown[i + 2];
    if (hit < 0) { tip.style.display = "none"; return; }
    const [, kind, batch, layer, tokens] = store.what.slice(FIELDS * hit, FIELDS * hit + FIELDS);
    tip.textContent = `${model.get("kinds")[kind].replaceAll("_", " ")} · batch ${batch} · layer ${layer} · ${tokens} tokens · ${format(store.times[2 * hit + 1] - store.times[2 * hit])}`;
    Object.assign(tip.style, { display: "block", left: Math.min(e.offsetX + 14, canvas.clientWidth - 420) + "px", top: canvas.offsetTop + e.offsetY + 16 + "px" });
  };
  canvas.onpointerleave = () => { tip.style.display = "none"; };

  const grown = () => { size(); ask(); };
  const watch = new ResizeObserver(grown);
  watch.observe(root);
  const sight = new IntersectionObserver((entries) => { visible = entries.at(-1).isIntersecting; ask(); }); // nobody looks: draw nothing
  sight.observe(canvas);
  store.views.add(ask);
  model.on("change:rows change:places change:row_px", grown);
  model.on("change:title", () => { title.textContent = model.get("title"); });
  model.on("change:window_s", () => { span = model.get("window_s"); ask(); });
  model.on("change:speed", () => { started = performance.now(); ask(); });
  explain(); size(); ask();
  return () => { stopped = true; watch.disconnect(); sight.disconnect(); store.views.delete(ask); };
}

export default {
  initialize({ model }) { storeOf(model); model.send({ hello: true }); },
  render,
};
