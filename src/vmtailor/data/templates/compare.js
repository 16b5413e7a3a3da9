// SPDX-License-Identifier: Apache-2.0
// The comparison page: one table.
(() => {
  const amount = (r, n) => r.unit === "µs" ? vm.duration(n) : n === null ? "–" : vm.grouped(n) + (r.name.includes(r.unit) ? "" : ` ${r.unit}`);
  const rows = vm.data.rows.map(([kind, name, run, before, after, change, low, high, p, verdict, direction, moved, unit, boots, of]) => ({ kind, name, run, before, after, change, low, high, p, verdict, direction, moved, unit, boots, of }));
  const words = { faster: "less", slower: "more" };
  for (const r of rows) if (r.unit !== "µs" && words[r.verdict]) [r.shade, r.verdict] = [r.verdict, words[r.verdict]];
  const sides = vm.data.sides;
  for (const r of rows) r.said = r.verdict === "in some boots" ? `in ${r.boots.map((n, i) => n ? `${n} of ${r.of[i]}` : "").filter(Boolean).join(" and in ")}` : r.verdict;
  const verdicts = [...new Set(rows.map((r) => r.verdict))];
  const shade = { faster: "good", gone: "good", slower: "bad", new: "warn", moved: "accent" };
  vm.table(document.getElementById("items"), {
    rows, label: "items", noun: "items", chunk: 40,
    text: (r) => `${r.kind} ${r.name} ${r.verdict}`,
    chips: verdicts.length > 1 ? { values: verdicts.map((v) => [v, v]), of: (r) => [r.verdict] } : null,
    columns: [
      { title: "Kind", value: (r) => r.kind, cell: (r) => r.kind },
      { title: "Name", value: (r) => r.name, cell: (r) => r.run > 1 ? `${r.name} (run ${r.run})` : r.name },
      { title: sides[0], number: true, value: (r) => r.before ?? -1, cell: (r) => amount(r, r.before) },
      { title: sides[1], number: true, value: (r) => r.after ?? -1, cell: (r) => amount(r, r.after) },
      { title: "Change", number: true, value: (r) => r.change ?? 0, cell: (r) => (r.change > 0 ? "+" : "") + amount(r, r.change) },
      { title: "95 %", number: true, value: (r) => r.low ?? 0, cell: (r) => r.low === null ? "–" : `${amount(r, r.low)} … ${amount(r, r.high)}` },
      { title: "Verdict", value: (r) => r.verdict, cell: (r) => vm.el("span", {}, vm.el("span", { class: `tag ${shade[r.shade || r.verdict] || ""}` }, r.said), r.direction ? ` ${r.direction}${r.verdict === "undecided" ? "?" : ""}` : "", r.moved && r.verdict !== "moved" ? " moved" : "") },
    ],
  });
})();
