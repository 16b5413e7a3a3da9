// SPDX-License-Identifier: Apache-2.0
// The boot page: a timeline that zooms, an icicle of own time, and a table, each leading to the others.
(() => {
  const { data, el, duration: time, share: percent } = vm;
  const bars = data.bars.map(([kind, name, start, us, own, beside, run, source, returned, reported], id) =>
    ({ id, kind, name, start, us, own, beside, run, source, returned, reported, end: start + us, text: `${kind} ${name}`.toLowerCase() }));
  const gantt = document.getElementById("gantt"), icicle = document.getElementById("icicle");
  const span = document.getElementById("span"), find = document.getElementById("find");
  if (!bars.length) document.getElementById("chart").hidden = true;

  // Lanes: what nests goes one deeper, what runs side by side gets a lane of its own.
  const groups = [["path", "kernel", (b) => (b.kind === "initcall" || b.kind === "probe") && !b.beside], ["beside", "beside", (b) => (b.kind === "initcall" || b.kind === "probe") && b.beside],
    ["gap", "silences", (b) => b.kind === "gap"], ["unit", "units", (b) => b.kind === "unit"], ["process", "processes", (b) => b.kind === "process"]];
  const lanes = [];
  const titles = [];
  for (const [key, title, test] of groups) {
    const mine = bars.filter(test);
    if (!mine.length) continue;
    const first = lanes.length;
    titles.push([first, title]);
    const ends = [];
    const stack = [];
    for (const bar of mine) {
      let lane;
      if (key === "path") {
        while (stack.length && stack[stack.length - 1].end <= bar.start + 30 && stack[stack.length - 1].end < bar.end) stack.pop();
        bar.parent = stack.length ? stack[stack.length - 1] : null;
        lane = stack.length;
        stack.push(bar);
      } else {
        lane = ends.findIndex((end) => end <= bar.start);
        if (lane < 0) lane = ends.length;
        ends[lane] = Math.max(bar.end, bar.start + 1);
      }
      bar.lane = first + lane;
      while (lanes.length <= bar.lane) lanes.push([]);
      lanes[bar.lane].push(bar);
    }
    lanes.push([]);
  }
  const AXIS = 26;
  const rowHeight = Math.max(5, Math.min(17, Math.floor(1500 / Math.max(1, lanes.length))));
  const phases = data.phases.filter((p) => p[1] !== null);
  const low = Math.min(bars.reduce((n, b) => Math.min(n, b.start), Infinity), ...phases.map((p) => p[1]), Infinity);
  const high = bars.reduce((n, b) => Math.max(n, b.end), Math.max(...phases.map((p) => p[2] ?? p[1]), data.last ?? -Infinity, -Infinity));
  // The boot fills the chart; what was logged long after it is there, but squeezes nothing.
  const all = [low, Math.max(high, low + 1)];
  const whole = [low, data.end !== null && data.end > low ? Math.min(data.end, all[1]) : all[1]];
  const tail = all[1] > whole[1] + (whole[1] - whole[0]) / 50;
  if (!tail) whole[1] = all[1];
  let view = [...whole], chosen = null, hits = null, dirty = false;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function fit(canvas, height) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth || 800;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return [pen, width];
  }
  function palette() {
    return { initcall: css("--kernel"), probe: css("--probe"), unit: css("--unit"), gap: css("--gap"), process: css("--process"), ink: css("--ink"), soft: css("--ink-2"), line: css("--line"), hit: css("--hit"), card: css("--card") };
  }
  function step(width) {
    const rough = (view[1] - view[0]) / Math.max(2, width / 110), ten = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough);
  }
  function draw() {
    dirty = false;
    const height = AXIS + lanes.length * rowHeight + 4;
    const [pen, width] = fit(gantt, height);
    const colour = palette(), scale = width / (view[1] - view[0]), x = (us) => (us - view[0]) * scale;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const tick = step(width);
    for (let at = Math.ceil(view[0] / tick) * tick; at <= view[1]; at += tick) {
      pen.fillStyle = colour.line;
      pen.fillRect(Math.round(x(at)), 14, 1, height);
      pen.fillStyle = colour.soft;
      pen.fillText(time(Math.round(at)), x(at) + 3, 8);
    }
    for (const [name, start, end] of phases) {
      pen.fillStyle = css(`--${name}`) || colour.soft;
      pen.globalAlpha = end === null ? 0.5 : 1;
      pen.fillRect(x(start), AXIS - 8, Math.max(2, x(end ?? whole[1]) - x(start)), 4);
      pen.globalAlpha = 1;
    }
    if (tail) {
      pen.fillStyle = colour.hit;
      pen.fillRect(x(whole[1]) - 1, AXIS - 10, 1.5, height);
      const words = `the log goes on to ${time(all[1])}`, room = pen.measureText(words).width + 6;
      pen.fillText(words, x(whole[1]) + 4 + room < width ? x(whole[1]) + 4 : x(whole[1]) - room, height - 8);
    }
    for (const bar of bars) {
      const left = x(bar.start), right = Math.max(x(bar.end), left + 1);
      if (right < 0 || left > width) continue;
      const y = AXIS + bar.lane * rowHeight, hit = hits && hits.has(bar.id);
      pen.globalAlpha = hits && !hit ? 0.15 : bar.beside ? 0.5 : bar.kind === "process" ? 0.4 + 0.6 * Math.min(1, 4 * (bar.own || 0) / (bar.us || 1)) : 1;
      pen.fillStyle = bar === chosen || hit ? colour.hit : colour[bar.kind];
      const from = Math.max(left, -5), size = Math.min(right, width + 5) - from;
      pen.fillRect(from, y, Math.max(size - (size > 3 ? 0.6 : 0), 0.8), rowHeight - 1);
      if (size > 46 && rowHeight >= 11) {
        pen.globalAlpha = 1;
        pen.fillStyle = colour.card;
        pen.save();
        pen.beginPath();
        pen.rect(from, y, size - 2, rowHeight);
        pen.clip();
        pen.fillText(bar.name, Math.max(left, 0) + 4, y + rowHeight / 2);
        pen.restore();
      }
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colour.soft;
    for (const [lane, title] of titles.slice(1)) pen.fillText(title, 4, AXIS + lane * rowHeight - rowHeight / 2);
    gantt.dataset.from = String(Math.round(view[0]));
    gantt.dataset.to = String(Math.round(view[1]));
    gantt.dataset.bars = String(bars.length);
    gantt.dataset.chosen = chosen ? chosen.name : "";
    gantt.dataset.hits = hits ? String(hits.size) : "";
    span.textContent = `${time(Math.round(view[0]))} to ${time(Math.round(view[1]))}${hits ? `, ${hits.size} found` : ""}${chosen ? `, ${chosen.name}: ${time(chosen.us)}` : ""}`;
  }
  const redraw = () => { if (!dirty) { dirty = true; requestAnimationFrame(draw); } };

  function look(from, to) {
    const least = 20, most = all[1] - all[0];
    let size = Math.min(Math.max(to - from, least), most * 1.1), start = from;
    start = Math.max(all[0] - most * 0.05, Math.min(start, all[1] + most * 0.05 - size));
    view = [start, start + size];
    redraw();
  }
  function zoom(factor, at = (view[0] + view[1]) / 2) {
    look(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  }
  function choose(bar, move) {
    chosen = bar;
    if (bar && move) {
      const room = Math.max(bar.us * 1.5, (whole[1] - whole[0]) / 400);
      look(bar.start + bar.us / 2 - room, bar.start + bar.us / 2 + room);
    }
    redraw();
  }
  document.getElementById("zoom-in").addEventListener("click", () => zoom(0.5));
  document.getElementById("zoom-out").addEventListener("click", () => zoom(2));
  document.getElementById("zoom-all").addEventListener("click", () => { view = [...whole]; redraw(); });
  document.getElementById("zoom-log")?.addEventListener("click", () => { view = [...all]; redraw(); });
  const place = (event) => { const box = gantt.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top, box.width]; };
  gantt.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && document.activeElement !== gantt) return;
    event.preventDefault();
    const [px, , width] = place(event);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, view[0] + (view[1] - view[0]) * px / width);
  }, { passive: false });
  let drag = null;
  gantt.addEventListener("pointerdown", (event) => { drag = { at: event.clientX, view: [...view], moved: false }; gantt.setPointerCapture(event.pointerId); gantt.focus({ preventScroll: true }); });
  gantt.addEventListener("pointermove", (event) => {
    if (!drag) { hover(event, barAt(event)); return; }
    const moved = event.clientX - drag.at;
    if (Math.abs(moved) > 3) drag.moved = true;
    if (drag.moved) { const shift = -moved * (drag.view[1] - drag.view[0]) / gantt.clientWidth; look(drag.view[0] + shift, drag.view[1] + shift); }
  });
  gantt.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    if (was && !was.moved) { const bar = barAt(event); choose(bar, false); if (bar) showRow(bar); }
  });
  gantt.addEventListener("pointercancel", () => { drag = null; });
  gantt.addEventListener("keydown", (event) => {
    const size = view[1] - view[0];
    const act = { ArrowLeft: () => look(view[0] - size / 8, view[1] - size / 8), ArrowRight: () => look(view[0] + size / 8, view[1] + size / 8), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => { view = [...whole]; redraw(); } }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  function barAt(event) {
    const [px, py, width] = place(event), lane = lanes[Math.floor((py - AXIS) / rowHeight)];
    if (!lane) return null;
    const at = view[0] + (view[1] - view[0]) * px / width, slack = 2 * (view[1] - view[0]) / width;
    let best = null;
    for (const bar of lane) if (bar.start - slack <= at && at <= bar.end + slack && (!best || bar.us < best.us || (bar.start <= at && at <= bar.end))) best = bar;
    return best;
  }
  const tip = document.getElementById("tip");
  function hover(event, bar, note = "") {
    if (!bar) { tip.hidden = true; return; }
    tip.textContent = `${bar.name}${bar.run > 1 && bar.kind !== "process" ? ` (run ${bar.run})` : ""}\n${bar.kind}, from ${time(bar.start)}: ${time(bar.us)}${bar.own === null ? "" : `, own ${time(bar.own)}`}${bar.reported !== null && bar.reported !== bar.us ? `, reported ${time(bar.reported)}` : ""}${bar.beside ? "\nran beside the boot" : ""}${bar.kind === "gap" ? `\n${bar.source}` : ""}${note}`;
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8) + scrollX}px`;
    tip.style.top = `${event.clientY + 16 + scrollY}px`;
  }
  for (const canvas of [gantt, icicle]) canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = words.length ? new Set(bars.filter((b) => words.every((w) => b.text.includes(w))).map((b) => b.id)) : null;
    redraw();
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits || !hits.size) return;
    const found = bars.filter((b) => hits.has(b.id)), next = found[(found.indexOf(chosen) + 1) % found.length];
    choose(next, true);
  });

  // Icicle: a box as wide as an item took, what ran inside it below; the rest of its width is its own.
  const boxes = [];
  function icicleRows(width) {
    boxes.length = 0;
    const roots = [];
    for (const [key, title, test] of groups) {
      const mine = bars.filter(test).filter((b) => (key === "path" ? b.us : (b.own ?? b.us)) > 0);
      if (!mine.length) continue;
      const children = new Map();
      for (const bar of mine) { const p = bar.parent || null; if (!children.has(p)) children.set(p, []); children.get(p).push(bar); }
      const size = (b) => key === "path" ? b.us : (b.own ?? 0);
      const top = (children.get(null) || []).filter((b) => size(b) > 0);
      roots.push({ title, top, size, children, total: top.reduce((n, b) => n + size(b), 0) });
    }
    const total = roots.reduce((n, r) => n + r.total, 0) || 1;
    let at = 0, deepest = 0;
    for (const root of roots) {
      boxes.push({ x: at, w: root.total / total * width, depth: 0, title: `${root.title}: ${time(root.total)}` });
      const lay = (list, x, depth, limit) => {
        let left = x;
        for (const bar of [...list].sort((a, b) => root.size(b) - root.size(a))) {
          const w = Math.min(root.size(bar) / total * width, limit - (left - x));
          if (w < 0.7) break;
          boxes.push({ x: left, w, depth, bar });
          deepest = Math.max(deepest, depth);
          const inner = root.children.get(bar);
          if (inner) lay(inner, left, depth + 1, w);
          left += w;
        }
      };
      lay(root.top, at, 1, root.total / total * width);
      at += root.total / total * width;
    }
    return deepest + 1;
  }
  const ICE = 20;
  function drawIcicle() {
    const width = icicle.clientWidth || 800, rows = icicleRows(width);
    const [pen] = fit(icicle, rows * ICE + 2);
    const colour = palette();
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const box of boxes) {
      pen.globalAlpha = box.bar ? (box.bar.beside ? 0.45 : 0.62 + 0.38 / box.depth) : 0.25;
      pen.fillStyle = box.bar ? colour[box.bar.kind] : colour.soft;
      pen.fillRect(box.x, box.depth * ICE, Math.max(box.w - 0.6, 0.5), ICE - 1);
      if (box.w > 44) {
        pen.globalAlpha = 1;
        pen.fillStyle = box.bar ? colour.card : colour.ink;
        pen.save();
        pen.beginPath();
        pen.rect(box.x, box.depth * ICE, box.w - 3, ICE);
        pen.clip();
        pen.fillText(box.bar ? box.bar.name : box.title, box.x + 4, box.depth * ICE + ICE / 2);
        pen.restore();
      }
    }
    pen.globalAlpha = 1;
    icicle.dataset.boxes = String(boxes.length);
  }
  function boxAt(event) {
    const at = icicle.getBoundingClientRect(), x = event.clientX - at.left, depth = Math.floor((event.clientY - at.top) / ICE);
    return boxes.find((b) => b.depth === depth && b.x <= x && x <= b.x + b.w) || null;
  }
  icicle.addEventListener("pointermove", (event) => { const box = boxAt(event); hover(event, box && box.bar); });
  icicle.addEventListener("click", (event) => {
    const box = boxAt(event);
    if (box && box.bar) { choose(box.bar, true); showRow(box.bar); gantt.scrollIntoView({ block: "center", behavior: "smooth" }); }
  });

  // The table, linked both ways.
  const index = new Map();
  for (const bar of bars) { const key = `${bar.kind}\n${bar.name}`; if (!index.has(key)) index.set(key, []); index.get(key).push(bar); }
  const spots = data.hotspots.map(([kind, name, own, kernel, total, advice, start, run, path, took, times, options, source]) => {
    const list = index.get(`${kind}\n${name}`) || [];
    return { kind, name, own, kernel, total, advice, run, path, start, took, times, option: options.join(" or "), source, bar: list.find((b) => b.run === run) || list[0] || null };
  });
  function jump(spot) {
    if (spot.bar) choose(spot.bar, true);
    else if (spot.start !== null) { chosen = null; look(spot.start - spot.own * 0.5, spot.start + spot.own * 1.5); }
    gantt.scrollIntoView({ block: "center" });
  }
  const kinds = [...new Set(spots.map((s) => s.kind))];
  const table = vm.table(document.getElementById("spots"), {
    rows: spots, label: "hot spots", noun: "hot spots", chunk: 30,
    text: (s) => `${s.kind} ${s.name} ${s.advice.join(" ")} ${s.path} ${s.option}`,
    chips: kinds.length > 1 ? { values: kinds.map((k) => [k, k]), of: (s) => [s.kind] } : null,
    columns: [
      { title: "Kind", value: (s) => s.kind, cell: (s) => s.kind },
      { title: "Name", value: (s) => s.name, cell: (s) => {
        const label = s.run > 1 && s.kind !== "process" ? `${s.name} (run ${s.run})` : s.times > 1 ? `${s.name} (${s.times} times)` : s.name;
        return s.bar || s.start !== null ? el("button", { type: "button", class: "link", on: { click: () => jump(s) } }, label) : label;
      } },
      { title: "Own time", number: true, value: (s) => s.own, cell: (s) => time(s.own) },
      { title: "Took", number: true, value: (s) => s.took ?? -1, cell: (s) => time(s.took) },
      { title: "Of the kernel", number: true, value: (s) => s.kernel ?? -1, cell: (s) => percent(s.kernel) },
      { title: "Of the boot", number: true, value: (s) => s.total ?? -1, cell: (s) => percent(s.total) },
      { title: "Path", value: (s) => s.path, cell: (s) => s.path === "critical" ? "in the way" : s.path === "beside" ? "beside" : "not known" },
      { title: "Option", value: (s) => s.option || "\uffff", cell: (s) => s.option ? el("span", { title: s.source }, s.option) : "" },
      { title: "Advice", value: (s) => s.advice.join(" "), cell: (s) => s.advice.join(", ") },
    ],
  });
  const said = document.getElementById("kernel-lines");
  if (said) vm.table(said, {
    rows: data.lines.map(([at, text, options, source]) => ({ at, text, option: options.join(" or "), source })),
    label: "lines of the kernel", noun: "lines", chunk: 30,
    text: (l) => `${l.text} ${l.option} ${l.source}`,
    columns: [
      { title: "At", number: true, value: (l) => l.at ?? -1, cell: (l) => time(l.at) },
      { title: "Line", value: (l) => l.text, cell: (l) => l.text },
      { title: "Option", value: (l) => l.option || "\uffff", cell: (l) => l.option },
      { title: "Source", value: (l) => l.source, cell: (l) => l.source },
    ],
  });
  function showRow(bar) {
    table.search.value = bar.name;
    table.search.dispatchEvent(new Event("input"));
  }

  new ResizeObserver(() => { redraw(); drawIcicle(); }).observe(gantt);
  new MutationObserver(() => { redraw(); drawIcicle(); }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redraw(); drawIcicle(); });
  draw();
  drawIcicle();
})();
