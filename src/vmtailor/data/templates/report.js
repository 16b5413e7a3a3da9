// SPDX-License-Identifier: Apache-2.0
// The report of a fit: its three long tables. Everything else on the page is there without a script.
"use strict";
(() => {
  const { data, el, grouped, short, table } = vm;
  const host = (id) => document.getElementById(id);
  const code = (text) => el("code", {}, text);

  table(host("symbol-table"), {
    rows: data.symbols,
    label: "Symbols", noun: "symbols",
    text: (row) => [row.name, row.value, row.cause, ...row.reasons.flat()].join(" "),
    chips: {
      values: [["prompt", "with a prompt"], ["demanded", "demanded"], ["platform", "platform"], ["repair", "repair"], ["policy", "policy"], ["margin", "margin"], ["dependency", "dependency"], ["unexplained", "unexplained"]]
        .filter(([key]) => key === "prompt" || data.symbols.some((row) => row.cause === key)),
      of: (row) => [row.cause, row.prompt && row.kept ? "prompt" : "hidden"],
    },
    columns: [
      { title: "Symbol", value: (row) => row.name, cell: (row) => code(row.name) },
      { title: "Value", value: (row) => row.value, cell: (row) => code(row.value) },
      { title: "Cause", value: (row) => row.cause, cell: (row) => el("span", { class: `tag ${row.cause === "demanded" ? "accent" : row.cause === "repair" || row.cause === "unexplained" ? "warn" : ""}` }, row.cause) },
      { title: "Reason on record", value: (row) => (row.reasons[0] || ["", ""])[1], class: "grow",
        cell: (row) => el("div", {}, row.reasons.map(([, text, reference]) => el("span", { class: "why" }, text, " ", el("span", { class: "ref" }, reference)))) },
    ],
  });

  table(host("left-out-table"), {
    rows: data.left_out,
    label: "Symbols that were left out", noun: "symbols",
    text: (row) => [row.name, ...row.evidence.flat()].join(" "),
    sort: [1, -1],
    columns: [
      { title: "Symbol", value: (row) => row.name, cell: (row) => code(row.name) },
      { title: "Instructions", number: true, value: (row) => row.instructions, cell: (row) => (row.instructions ? grouped(row.instructions) : "–") },
      { title: "Seen", class: "grow", value: (row) => row.evidence.length, cell: (row) => {
        if (!row.evidence.length) return el("span", { class: "muted" }, "never ran");
        const parts = row.evidence.slice(0, 4).map(([kind, key, where, count]) => el("span", { class: "why" }, `${kind} `, code(key), count > 1 ? ` ×${count} ` : " ", el("span", { class: "ref" }, where)));
        return el("div", {}, parts, row.evidence.length > 4 ? el("span", { class: "muted" }, `and ${row.evidence.length - 4} more`) : null);
      } },
    ],
  });

  const three = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(2));
  const time = (us) => (us >= 1e6 ? `${three(us / 1e6)}\u202fs` : us >= 1e3 ? `${three(us / 1e3)}\u202fms` : `${three(us)}\u202fµs`);
  const tasks = [...new Set(data.calls.map((row) => row.task))];
  if (!host("call-table")) return; // a system's calls are in its trace
  table(host("call-table"), {
    rows: data.calls,
    chips: tasks.length > 1 && tasks.length <= 10 ? { values: tasks.map((task, i) => [`task-${i}`, task]), of: (row) => [`task-${tasks.indexOf(row.task)}`] } : undefined,
    label: "System calls", noun: "calls",
    text: (row) => [row.task, row.name, ...row.errors.flat(), ...row.constant.flat()].join(" "),
    sort: [2, -1],
    columns: [
      { title: "Call", value: (row) => row.name, cell: (row) => code(row.name) },
      { title: "Task", value: (row) => row.task, cell: (row) => row.task },
      { title: "Count", number: true, value: (row) => row.count, cell: (row) => grouped(row.count) },
      { title: "Errors", value: (row) => row.errors.reduce((sum, [, n]) => sum + n, 0), cell: (row) => row.errors.map(([error, n]) => `${error} ${n}`).join(", ") || "–" },
      { title: "Min", number: true, value: (row) => row.us[0], cell: (row) => time(row.us[0]) },
      { title: "Mean", number: true, value: (row) => row.us[1], cell: (row) => time(row.us[1]) },
      { title: "Max", number: true, value: (row) => row.us[2], cell: (row) => time(row.us[2]) },
      { title: "Always the same", class: "grow", value: (row) => row.constant.length, cell: (row) => el("div", {}, row.constant.map(([index, value]) => el("span", { class: "why" }, `argument ${index + 1}: `, code(value)))) },
    ],
  });
})();
