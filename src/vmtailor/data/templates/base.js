// SPDX-License-Identifier: Apache-2.0
// Shared by all pages: the embedded data, small helpers that only ever make text nodes, the theme, tabs, tooltips.
"use strict";
const vm = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  /** An element; `attributes` may hold `class`, any attribute, or `on` (event → handler). Children: nodes or text. */
  function el(name, attributes = {}, ...children) {
    const svg = /^(svg|g|rect|line|path|text|title|desc|circle|polygon)$/.test(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }

  const grouped = (n) => (n === null || n === undefined ? "–" : Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f"));
  function short(n) {
    if (n === null || n === undefined) return "–";
    for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(n) >= size * 0.9995) {
        const v = n / size;
        return `${v >= 99.95 ? Math.round(v) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2)}\u202f${unit}`;
      }
    return String(Math.round(n * 100) / 100);
  }

  /** A time in µs and a part of 1, for columns that are compared: as the terminal writes them. */
  const duration = (us) => us === null || us === undefined ? "–" : Math.abs(us) >= 1e6 ? `${(us / 1e6).toFixed(3)} s` : Math.abs(us) >= 1e3 ? `${(us / 1e3).toFixed(Math.abs(us) < 1e4 ? 2 : 0)} ms` : `${Math.round(us)} µs`;
  const share = (part) => part === null ? "–" : `${(100 * part).toFixed(1)} %`;

  // Theme: automatic, light, dark. Kept for this file where the browser lets a file keep anything.
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  function remembered() { try { return localStorage.getItem("vmtailor-theme"); } catch { return null; } }
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
    try { localStorage.setItem("vmtailor-theme", theme); } catch { /* a file opened without storage: not kept */ }
  }
  setTheme(themes.includes(remembered()) ? remembered() : "auto");
  button.hidden = false;
  button.addEventListener("click", () => setTheme(themes[(themes.indexOf(button.dataset.theme) + 1) % themes.length]));

  // Tabs: <div class="tabs" role="tablist"><button role="tab" aria-controls=ID>…; arrow keys move, as readers expect.
  for (const list of document.querySelectorAll("[role=tablist]")) {
    const tabs = [...list.querySelectorAll("[role=tab]")];
    const choose = (tab, focus) => {
      for (const other of tabs) {
        const on = other === tab;
        other.setAttribute("aria-selected", on);
        other.tabIndex = on ? 0 : -1;
        document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
      }
      if (focus) tab.focus();
    };
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => choose(tab, false));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -i, End: tabs.length - 1 - i }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        choose(tabs[(i + step + tabs.length) % tabs.length], true);
      });
    });
    if (tabs.length) { list.hidden = false; choose(tabs[0], false); }
  }

  // Widths of bars are data: <span data-width="37.5">. A style attribute would be refused by the page's own policy.
  for (const node of document.querySelectorAll("[data-width]")) node.style.width = `${node.dataset.width}%`;

  // Tooltips: anything with data-tip, by pointer and by keyboard. Text only.
  const tip = el("div", { class: "tip", role: "tooltip", id: "tip", hidden: "" });
  document.body.append(tip);
  function showTip(node) {
    tip.textContent = node.dataset.tip;
    tip.hidden = false;
    const at = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = at.top - own.height - 8;
    tip.style.left = `${x + scrollX}px`;
    tip.style.top = `${(above > 4 ? above : at.bottom + 8) + scrollY}px`;
  }
  const hideTip = () => { tip.hidden = true; };
  for (const [type, handler] of [["pointerover", null], ["focusin", null]])
    document.addEventListener(type, (event) => {
      const node = event.target.closest ? event.target.closest("[data-tip]") : null;
      if (node) showTip(node); else hideTip();
    });
  document.addEventListener("focusout", hideTip);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

  // Copy buttons: <button data-copy="ID">. Where the clipboard is refused, the text is selected instead.
  for (const node of document.querySelectorAll("[data-copy]")) {
    node.hidden = false;
    node.addEventListener("click", async () => {
      const source = document.getElementById(node.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
        node.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(source);
        node.textContent = "Selected: press Ctrl+C";
      }
    });
  }

  // Folded parts are printed unfolded, and folded again afterwards.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const node of opened) node.open = true;
  });
  addEventListener("afterprint", () => { for (const node of opened) node.open = false; });

  /**
   * A table over many rows: a search field, optional chips that filter by one column, sorting by the heads, and rows
   * that are made as they are asked for. `columns`: {title, value(row), cell(row) → node or text, number, tip}.
   * `text(row)` is what the search looks through; every word must be found.
   */
  function table(host, { rows, columns, text, label, noun, chips, chunk = 25, mostPrinted = 400, sort = null }) {
    const haystack = rows.map((row) => text(row).toLowerCase());
    let order = sort, words = [], chip = null, shown = chunk;
    const search = el("input", { type: "search", placeholder: `Search ${rows.length} ${noun}`, "aria-label": `Search ${label}`, on: { input: () => { words = search.value.toLowerCase().replace(/config_/g, "").split(/\s+/).filter(Boolean); shown = chunk; draw(); } } });
    const count = el("span", { class: "count", role: "status", "aria-live": "polite" });
    const bar = el("div", { class: "tools" }, search);
    const chipButtons = [];
    if (chips) {
      const group = el("div", { class: "chips", role: "group", "aria-label": "Filter" });
      for (const [value, title] of chips.values) {
        const number = rows.filter((row) => chips.of(row).includes(value)).length;
        const node = el("button", { type: "button", class: `chip c-${value}`, "aria-pressed": "false" }, `${title} `, el("b", {}, String(number)));
        node.addEventListener("click", () => { chip = chip === value ? null : value; shown = chunk; draw(); });
        chipButtons.push([value, node]);
        group.append(node);
      }
      bar.append(group);
    }
    bar.append(count);
    const heads = columns.map((column, i) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => { order = order && order[0] === i ? [i, -order[1]] : [i, column.number ? -1 : 1]; draw(); });
      return el("th", { scope: "col", class: column.number ? "n" : column.class }, button);
    });
    const body = el("tbody"), more = el("button", { type: "button", class: "quiet more" }, "");
    more.addEventListener("click", () => { shown += chunk * 8; draw(); });
    host.replaceChildren(bar, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", { class: "rows" }, el("thead", {}, el("tr", {}, heads)), body)), more);
    function draw(print = false) {
      let found = rows.map((_, i) => i).filter((i) => words.every((w) => haystack[i].includes(w)) && (!chip || chips.of(rows[i]).includes(chip)));
      if (order) {
        const value = columns[order[0]].value;
        found.sort((a, b) => { const x = value(rows[a]), y = value(rows[b]); return (x < y ? -1 : x > y ? 1 : a - b) * order[1]; });
      }
      count.textContent = found.length === rows.length ? `${rows.length} ${noun}` : `${found.length} of ${rows.length} ${noun}`;
      const visible = found.slice(0, print ? mostPrinted : shown);
      body.replaceChildren(...visible.map((i) => el("tr", {}, columns.map((column) => el("td", { class: column.number ? "n" : column.class, "data-title": column.title }, column.cell(rows[i]))))));
      if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "none" }, "Nothing matches.")));
      if (print && found.length > mostPrinted) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "none" }, `${found.length - mostPrinted} more ${noun} are in the page itself.`)));
      more.hidden = visible.length === found.length;
      more.textContent = `Show more (${found.length - visible.length} left)`;
      heads.forEach((head, i) => head.setAttribute("aria-sort", order && order[0] === i ? (order[1] > 0 ? "ascending" : "descending") : "none"));
      for (const [value, node] of chipButtons) node.setAttribute("aria-pressed", String(chip === value));
    }
    addEventListener("beforeprint", () => draw(true));
    addEventListener("afterprint", () => draw());
    draw();
    return { search, draw };
  }

  return { data, el, grouped, duration, share, short, table };
})();
