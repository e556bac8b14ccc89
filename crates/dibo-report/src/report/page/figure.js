// A figure of the page: its tools, its panels and its legend.
class FigureView {
  constructor(host, figure, data) {
    Object.assign(this, {host, figure, data});
    this.state = {data, x: figure.x, y: figure.y, logX: figure.log.includes("x"), logY: figure.log.includes("y"), spread: "band",
      hidden: new Set(), view: {}, pan: false, names: figure.across ? figure.across[1] : null};
    this.charts = figure.panels.map(panel => new Chart(figure, panel, this.state, this));
    this.tools = make("div", {class: "tools"});
    this.area = make("div", {class: "charts"});
    this.keys = make("ul", {class: "keys", "aria-label": "series; a press hides or shows one"});
    host.classList.add("lively");
    host.prepend(this.tools, this.area, this.keys);
    this.charts.forEach((chart, i) => {
      const title = figure.panels[i].title;
      this.area.append(make("div", {}, ...(title ? [make("h3", {}, title)] : []), chart.box));
    });
    this.offer();
    this.draw();
    let width = host.clientWidth;
    new ResizeObserver(() => {
      if (host.clientWidth && Math.abs(host.clientWidth - width) > 1) {
        width = host.clientWidth;
        this.draw();
      }
    }).observe(host);
    darkness.addEventListener("change", () => this.draw());
  }

  // New data of the same shape.
  update(figure, data) {
    // Not under a hand that drags, and not where the reader is not.
    if (this.host.matches(":active")) return;
    this.figure = figure;
    this.data = this.state.data = data;
    this.charts.forEach((chart, i) => Object.assign(chart, {figure, panel: figure.panels[i]}));
    this.draw();
  }

  // All panels share their axes.
  ends(scale) {
    const all = this.charts.map(chart => chart.ends(scale));
    return [Math.min(...all.map(ends => ends[0])), Math.max(...all.map(ends => ends[1]))];
  }

  look(view) {
    this.state.view = view;
    this.charts.forEach(chart => chart.plot.setData(chart.data));
  }

  draw() {
    const {state, area, charts} = this, figure = this.figure;
    state.xLabel = figure.across ? figure.across[0] : COLUMNS[state.x] || state.x.replace(/_/g, " ");
    state.yLabel = metricLabel(this.data, state.y) || figure.label;
    const room = this.host.clientWidth || 640;
    const columns = Math.min(charts.length, 3, Math.max(1, Math.floor(room / 290)));
    area.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    const width = Math.floor((room - 13 * (columns - 1)) / columns);
    charts.forEach(chart => chart.load());
    charts.forEach(chart => {
      chart.box.classList.toggle("pan", state.pan);
      chart.build(width, Math.round(Math.min(400, Math.max(250, width * .52))));
    });
    const entries = new Map();
    for (const panel of figure.panels) for (const item of panel.items) if (!entries.has(item.label)) entries.set(item.label, item);
    // A legend that is the same stays, with the focus in it.
    const now = JSON.stringify([[...entries.keys()], [...state.hidden], darkness.matches]);
    if (now === this.legend) return;
    this.legend = now;
    this.keys.replaceChildren(...[...entries.values()].map(item => make("li", {}, this.entry(item, [...entries.keys()]))));
    if (figure.y2) this.keys.append(make("li", {}, swatch({dotted: true}), ` dotted: ${metricLabel(this.data, figure.y2)} (right axis)`));
  }

  entry(item, all) {
    const {hidden} = this.state;
    const button = make("button", {type: "button", title: "hide or show; with Alt, this one alone", "aria-pressed": String(!hidden.has(item.label))},
      swatch(item), item.label);
    button.addEventListener("click", event => {
      if (event.altKey) {
        const alone = all.every(label => label === item.label || hidden.has(label));
        hidden.clear();
        if (!alone) all.filter(label => label !== item.label).forEach(label => hidden.add(label));
      } else if (!hidden.delete(item.label)) hidden.add(item.label);
      const place = all.indexOf(item.label);
      this.draw();
      this.keys.querySelectorAll("button")[place]?.focus();
    });
    return button;
  }

  offer() {
    const {state, figure} = this, change = act => { act(); state.view = {}; this.draw(); };
    const choice = (label, options, value, act) => {
      const select = make("select", {}, ...options.map(([name, words]) => make("option", {value: name, selected: name === value}, words)));
      select.addEventListener("change", () => change(() => act(select.value)));
      this.tools.append(make("label", {}, label, select));
    };
    const check = (label, key) => {
      const box = make("input", {type: "checkbox", checked: state[key]});
      box.addEventListener("change", () => change(() => { state[key] = box.checked; }));
      this.tools.append(make("label", {}, box, label));
    };
    const button = (words, title, act, more = {}) => {
      const made = make("button", {type: "button", title, ...more}, words);
      made.addEventListener("click", () => act(made));
      return made;
    };
    if (figure.kind === "line") {
      choice("x", Object.entries(COLUMNS), state.x, value => { state.x = value; });
      check("log x", "logX");
      if (this.data.metrics.length > 1) choice("y", this.data.metrics.map(metric => [metric.name, metric.label]), state.y, value => { state.y = value; });
      check("log y", "logY");
      if (this.data.series.some(series => Object.values(series.values).some(values => values.low)))
        choice("seeds", [["band", "middle 80 %"], ["runs", "every run"], ["none", "median only"]], state.spread, value => { state.spread = value; });
    } else {
      if (!state.names) check("log x", "logX");
      check("log y", "logY");
    }
    const hint = "what dragging does: zoom to a box, or move (also with Shift); arrow keys, + and − work too";
    this.tools.append(button("drag: zoom", hint, made => {
      state.pan = !state.pan;
      made.textContent = state.pan ? "drag: move" : "drag: zoom";
      made.setAttribute("aria-pressed", String(state.pan));
      this.draw();
    }, {"aria-pressed": "false"}), button("show all", "the whole picture again (double click)", () => this.look({})));
    const saving = make("span", {class: "push"}, "save ", button("PNG", "the picture as it is now", () => this.picture()));
    const svg = this.host.querySelector(".static svg");
    if (svg) saving.append(" ", button("SVG", "the picture as the experiment asks for it", () =>
      save(new Blob([new XMLSerializer().serializeToString(svg)], {type: "image/svg+xml"}), figure.name + ".svg")));
    saving.append(" ", button("CSV", "the values that are shown", () => this.table()));
    this.tools.append(saving);
  }

  // The panels side by side with their titles and the legend, on the page's ground.
  picture() {
    const ratio = devicePixelRatio, gap = 8 * ratio, charts = this.charts.map(chart => chart.plot.ctx.canvas);
    const items = [...new Map(this.figure.panels.flatMap(panel => panel.items).map(item => [item.label, item])).values()]
      .filter(item => !this.state.hidden.has(item.label));
    const canvas = make("canvas", {}), ctx = canvas.getContext("2d"), title = this.figure.panels.some(panel => panel.title) ? 22 * ratio : 0;
    canvas.width = Math.max(charts.reduce((sum, chart) => sum + chart.width + gap, gap), 420 * ratio);
    const font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.font = font;
    const places = [];
    let x = gap, y = gap + title + charts[0].height + gap;
    for (const item of items) {
      const width = ctx.measureText(item.label).width + 54 * ratio;
      if (x > gap && x + width > canvas.width) { x = gap; y += 20 * ratio; }
      places.push([item, x, y]);
      x += width;
    }
    canvas.height = y + 24 * ratio;
    ctx.fillStyle = css("--page");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.font = font;
    ctx.textBaseline = "middle";
    let left = gap;
    charts.forEach((chart, i) => {
      ctx.fillStyle = css("--ink");
      ctx.textAlign = "center";
      ctx.fillText(this.figure.panels[i].title || "", left + chart.width / 2, gap + title / 2);
      ctx.drawImage(chart, left, gap + title);
      left += chart.width + gap;
    });
    ctx.textAlign = "left";
    for (const [item, x, y] of places) {
      const middle = y + 8 * ratio;
      ctx.strokeStyle = ctx.fillStyle = colourOf(item);
      ctx.lineWidth = 2 * ratio;
      ctx.setLineDash(dashOf(item).map(length => length * ratio));
      ctx.beginPath();
      ctx.moveTo(x, middle);
      ctx.lineTo(x + 30 * ratio, middle);
      ctx.stroke();
      ctx.setLineDash([]);
      const path = new Path2D(markPath(item.colour, x + 15 * ratio, middle, 4 * ratio));
      if (hollow(item.colour)) ctx.stroke(path); else ctx.fill(path);
      ctx.fillStyle = css("--ink");
      ctx.fillText(item.label, x + 36 * ratio, middle);
    }
    canvas.toBlob(blob => save(blob, this.figure.name + ".png"));
  }

  table() {
    const cell = text => /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    const rows = [["panel", "series", this.state.x.replace("setting:", ""), this.state.y, "low", "high"]];
    this.charts.forEach((chart, i) => chart.lines.filter(line => !line.item.dotted && !this.state.hidden.has(line.item.label)).forEach(line =>
      line.x.forEach((x, n) => rows.push([this.figure.panels[i].title || "", line.item.label, this.state.names ? this.state.names[x - 1] : x,
        line.y[n], line.low[n] ?? "", line.high[n] ?? ""]))));
    save(new Blob([rows.map(row => row.map(value => cell(String(value))).join(",") + "\n").join("")], {type: "text/csv"}), this.figure.name + ".csv");
  }
}

// Bars: what each series ends with, with its seeds as dots.
function bars(host, figure) {
  const area = make("div", {class: "charts"}), tools = make("div", {class: "tools"});
  const state = {log: figure.log.includes("y"), sorted: false};
  const values = figure.panels.flatMap(panel => panel.items).flatMap(item => item.runs).filter(finite);
  const draw = () => {
    const log = state.log && values.every(value => value > 0);
    const [low, high] = log ? range(values, true) : [Math.min(0, ...values), Math.max(0, ...values) || 1];
    const to = value => log ? Math.log(value) : value, place = value => (to(value) - to(low)) / (to(high) - to(low)) * 100;
    const percent = value => Math.min(100, Math.max(0, place(value))).toFixed(2) + "%";
    const splits = log ? logSplits(low, high, 5) : roundSplits(low, high, 5);
    area.replaceChildren(...figure.panels.map(panel => {
      const box = make("div", {class: "bars"});
      const items = state.sorted ? [...panel.items].sort((a, b) => (a.y[0] ?? Infinity) - (b.y[0] ?? Infinity)) : panel.items;
      for (const item of items) {
        const value = item.y[0], words = quantity(figure.y, value), runs = item.runs.filter(finite);
        const spread = runs.length > 1 ? `, seeds from ${quantity(figure.y, Math.min(...runs))} to ${quantity(figure.y, Math.max(...runs))}` : "";
        const track = make("div", {class: "track", title: `${item.label}: ${words}${spread}`});
        if (finite(value)) {
          const mark = make("div", {class: log ? "big" : "fill"});
          mark.style.background = colourOf(item);
          if (log) mark.style.left = percent(value);
          else { mark.style.left = percent(Math.min(0, value)); mark.style.width = `calc(${percent(Math.max(0, value))} - ${percent(Math.min(0, value))})`; }
          track.append(mark);
          if (runs.some(run => Math.abs(place(run) - place(value)) > .4)) for (const run of runs) {
            const dot = make("div", {class: "dot"});
            dot.style.left = percent(run);
            track.append(dot);
          }
        }
        box.append(make("div", {class: "name"}, item.label), track, make("div", {class: "value"}, words));
      }
      const axis = make("div", {class: "axis"}), [unit, word] = unitOf(figure.y, high);
      for (const split of splits) {
        const at = make("span", {}, tick(+(split / unit).toPrecision(3), powers(log, low / unit, high / unit)));
        at.style.left = percent(split);
        axis.append(at);
      }
      box.append(make("div", {class: "gap"}), axis, make("div", {class: "muted"}, word));
      return make("div", {}, ...(panel.title ? [make("h3", {}, panel.title)] : []), box);
    }));
  };
  for (const [key, words] of [["log", "log"], ["sorted", "by size"]]) {
    const box = make("input", {type: "checkbox", checked: state[key]});
    box.addEventListener("change", () => { state[key] = box.checked; draw(); });
    if (key !== "log" || values.every(value => value > 0)) tools.append(make("label", {}, box, words));
  }
  host.classList.add("lively");
  host.prepend(tools, area);
  draw();
  darkness.addEventListener("change", draw);
}
