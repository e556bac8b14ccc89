// What the page does beside its plots: tables that sort, and the start of everything.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  if (body.rows.length < 3) return;
  const size = {k: 1e3, M: 1e6, G: 1e9, T: 1e12, "µ": 1e-6, m: 1e-3};
  const units = {h: 3600, min: 60, s: 1, ms: 1e-3, "µs": 1e-6, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, M: 1e6, G: 1e9};
  const value = text => {
    const found = text.replace(/−/g, "-").match(/^\(?(-?[\d.]+(?:e-?\d+)?)(?: ± [\d.e-]+\)?(e-?\d+)?)?(?:\s*\[.*\])?\s*([^\d\s]*)$/);
    return found ? +(found[1] + (found[2] || "")) * (units[found[3]] ?? size[found[3]] ?? 1) : NaN;
  };
  heads.forEach((head, column) => {
    const button = make("button", {type: "button", title: "sort by this column"});
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = [...body.rows].map(row => ({row, text: row.cells[column]?.textContent.trim() ?? "", number: value(row.cells[column]?.textContent.trim() ?? "")}));
      keyed.sort((a, b) => {
        // What has no number stays below.
        const numbers = Number.isNaN(a.number) - Number.isNaN(b.number);
        if (keyed.some(entry => !Number.isNaN(entry.number)) && numbers) return numbers;
        const order = Number.isNaN(a.number) ? a.text.localeCompare(b.text) : a.number - b.number;
        return down ? -order : order;
      });
      body.append(...keyed.map(entry => entry.row));
    });
  });
}

// The figures of the page by their names. The first is drawn at once, the others when the page has been shown.
const views = new Map();
function show(data) {
  data.figures.forEach((figure, nth) => {
    const host = figure && document.querySelector(`[data-figure="${CSS.escape(figure.name)}"]`);
    if (!host) return;
    const known = views.get(figure.name);
    if (known) return known.update?.(figure, data);
    views.set(figure.name, {});
    const draw = () => views.set(figure.name, figure.kind === "bar" ? bars(host, figure) || {} : new FigureView(host, figure, data));
    if (nth) setTimeout(draw); else draw();
  });
}

document.querySelectorAll("table.sortable").forEach(sortable);
const held = document.querySelector("script[type=\"application/json\"]");
if (held) show(JSON.parse(held.textContent));
