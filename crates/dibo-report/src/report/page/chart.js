// One panel of a figure, on uPlot: lines with bands or runs, marks, a tip at the pointer.
const finite = value => value != null && Number.isFinite(value);

// The places and values of an item along the axes that are chosen.
function pointsOf(item, figure, state, metric) {
  if (item.series == null) {
    const keep = item.x.map((x, i) => i).filter(i => shown(item.x[i], item.y[i], state));
    const of = values => keep.map(i => values[i]);
    return {x: of(item.x), y: of(item.y), low: of(item.low), high: of(item.high), runs: []};
  }
  const series = state.data.series[item.series], values = series.values[metric];
  if (!values) return {x: [], y: [], low: [], high: [], runs: []};
  const at = state.x === "iteration" || !(state.x in series) ? series.iteration : series[state.x];
  const keep = at.map((x, i) => i).filter(i => series.iteration[i] >= figure.from && shown(at[i], values.middle[i], state));
  const of = list => list ? keep.map(i => list[i]) : [];
  return {x: of(at), y: of(values.middle), low: of(values.low), high: of(values.high), runs: (values.runs || []).map(of),
    lost: series.lost};
}
const shown = (x, y, state) => finite(x) && finite(y) && !(state.logX && x <= 0) && !(state.logY && y <= 0);

// The ends of what is visible, with a little room.
function range(values, log) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (finite(value) && !(log && value <= 0)) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [.1, 10] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const room = low === high ? Math.abs(low) * .1 || 1 : (high - low) * .03;
  return [low - room, high + room];
}

class Chart {
  constructor(figure, panel, state, group) {
    Object.assign(this, {figure, panel, state, group});
    this.box = make("div", {class: "chart", tabIndex: 0, role: "group", "aria-label": (panel.title || figure.label) +
      ": plot; arrow keys move, plus and minus zoom, 0 shows all"});
    this.tip = make("div", {class: "tip", hidden: true});
    this.box.addEventListener("keydown", event => this.key(event));
    this.box.addEventListener("pointerleave", () => { this.tip.hidden = true; });
  }

  items() {
    const dotted = this.figure.y2 ? this.panel.items.map(item => ({...item, dotted: true, scale: "y2"})) : [];
    return this.panel.items.map(item => ({...item, scale: "y"})).concat(dotted);
  }

  load() {
    this.lines = this.items().map(item => {
      const metric = item.dotted ? this.figure.y2 : this.state.y;
      const own = item.dotted ? {...this.state, logY: false} : this.state;
      return {item, ...pointsOf(item, this.figure, own, metric)};
    });
    this.data = uPlot.join(this.lines.map(line => [line.x, line.y]));
    if (!this.data.length || !this.data[0].length) this.data = [[0, 1], ...this.lines.map(() => [null, null])];
  }

  visible(scale) {
    const lines = this.lines.filter(line => line.item.scale === scale && !this.state.hidden.has(line.item.label));
    const sound = lines.filter(line => !line.lost);
    return sound.length ? sound : lines;
  }

  ends(scale) {
    const log = scale === "x" ? this.state.logX : scale === "y" && this.state.logY;
    if (scale === "x") {
      const [low, high] = this.state.names ? [.5, this.state.names.length + .5]
        : range(this.lines.filter(line => !this.state.hidden.has(line.item.label)).flatMap(line => line.x), log);
      return this.figure.kind === "line" && !log && low < 0 ? [0, high] : [low, high];
    }
    const values = this.visible(scale).flatMap(line => {
      if (this.state.spread === "band" && line.low.length && scale === "y") return [line.low, line.high, line.y].flat();
      if (this.state.spread === "runs" && line.runs.length && scale === "y") return [line.runs, line.y].flat(2);
      return line.y;
    });
    // What diverges leaves the picture instead of flattening the rest.
    const usual = values.filter(value => Math.abs(value) <= 1e6);
    return range(usual.length ? usual : values, log);
  }

  build(width, height) {
    this.load();
    this.plot?.destroy();
    const {state, figure} = this, ink = css("--ink"), soft = css("--soft"), line = css("--line");
    const view = scale => state.view[scale] || (scale === "y2" ? this.ends(scale) : this.group.ends(scale));
    const scale = (name, log) => ({time: false, distr: log ? 3 : 1, range: () => view(name)});
    const font = "12px system-ui, sans-serif";
    const axis = (name, log, column, label, side, size) => {
      const [unit, word] = unitOf(column, Math.max(...view(name).map(Math.abs)));
      const most = Math.max(2, Math.floor((side % 2 ? height : width) / (side % 2 ? 38 : 90)));
      return {scale: name, side, stroke: ink, font, labelFont: font, labelSize: 20, size, gap: 4, label: label + (word ? ` (${word})` : ""),
        grid: {stroke: line, width: 1, show: name !== "y2"}, ticks: {stroke: soft, width: 1, size: 4},
        // Minutes and hours are no powers of ten of what is drawn.
        splits: log ? (u, i, low, high) => logSplits(low, high, most)
          : unit % 60 ? undefined : (u, i, low, high) => roundSplits(low / unit, high / unit, most).map(value => value * unit),
        filter: log ? (u, splits) => splits : undefined,
        values: (u, splits) => splits.map(value => tick(value / unit, powers(log, ...view(name).map(end => end / unit)))), space: side % 2 ? 34 : 60};
    };
    const xAxis = axis("x", state.logX, state.x, state.xLabel, 2, 34);
    if (state.names) {
      xAxis.splits = () => state.names.map((name, i) => i + 1);
      xAxis.values = () => state.names;
      if (state.names.join("").length * 7 > width - 80) Object.assign(xAxis, {rotate: -30, size: 70});
    }
    const axes = [xAxis, axis("y", state.logY, state.y, state.yLabel, 3, 56)];
    if (figure.y2) axes.push(axis("y2", false, figure.y2, metricLabel(state.data, figure.y2), 1, 50));
    const scales = {x: scale("x", state.logX), y: scale("y", state.logY)};
    if (figure.y2) scales.y2 = scale("y2", false);
    const series = this.lines.map(({item, x}) => ({label: item.label, scale: item.scale, stroke: item.dotted ? soft : colourOf(item),
      width: item.dotted ? 1.5 : 2, dash: item.dotted ? [2, 3] : dashOf(item), spanGaps: true, show: !state.hidden.has(item.label),
      points: {show: x.length === 1 && item.series != null}, paths: state.names ? () => null : undefined}));
    this.plot = new uPlot({width, height, scales, axes, series: [{}, ...series], legend: {show: false}, focus: {alpha: .35},
      padding: [10, 12, 0, 0],
      cursor: {focus: {prox: 24}, sync: {key: figure.name, scales: ["x", null], setSeries: false}, drag: {x: true, y: true, uni: 24, setScale: false},
        dataIdx: (u, s, i) => nearest(u.data, s, i), bind: {dblclick: () => () => { this.group.look({}); return null; },
          mousedown: (u, target, handler) => event => state.pan || event.shiftKey ? this.pan(event) : handler(event)}},
      hooks: {drawAxes: [u => this.under(u)], draw: [u => this.over(u)], setCursor: [u => this.point(u)], setSelect: [u => this.select(u)]},
    }, this.data, this.box);
    this.plot.over.append(this.tip);
    if (state.pan) this.plot.over.style.touchAction = "none";
    this.plot.over.addEventListener("pointerdown", event => { if (event.pointerType !== "mouse" && state.pan) this.pan(event); });
  }

  // Bands, runs or whiskers, below the lines.
  under(u) {
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const line of this.lines) {
      if (line.item.dotted || this.state.hidden.has(line.item.label) || this.state.spread === "none") continue;
      const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(this.state.logY ? Math.max(y, 1e-300) : y, "y", true)];
      ctx.strokeStyle = ctx.fillStyle = colourOf(line.item);
      ctx.setLineDash([]);
      if (this.state.spread === "runs" && line.runs.length) {
        ctx.globalAlpha = .45;
        ctx.lineWidth = ratio;
        for (const run of line.runs) {
          ctx.beginPath();
          let pen = false;
          run.forEach((y, i) => {
            if (!finite(y) || this.state.logY && y <= 0) return;
            const [px, py] = at(line.x[i], y);
            if (pen) ctx.lineTo(px, py); else ctx.moveTo(px, py);
            pen = true;
          });
          ctx.stroke();
        }
      } else if (line.low.length && line.item.series == null) {
        ctx.globalAlpha = .8;
        ctx.lineWidth = 1.5 * ratio;
        line.x.forEach((x, i) => {
          const [px, low] = at(x + this.aside(line.item), line.low[i]), [, high] = at(x, line.high[i]);
          ctx.beginPath();
          ctx.moveTo(px, low);
          ctx.lineTo(px, high);
          ctx.stroke();
        });
      } else if (line.low.length > 1) {
        ctx.globalAlpha = .18;
        ctx.beginPath();
        line.x.forEach((x, i) => ctx[i ? "lineTo" : "moveTo"](...at(x, line.high[i] ?? line.y[i])));
        for (let i = line.x.length - 1; i >= 0; i--) ctx.lineTo(...at(line.x[i], line.low[i] ?? line.y[i]));
        ctx.fill();
      }
    }
    ctx.restore();
  }

  // Dots of one name stand side by side.
  aside(item) {
    if (!this.state.names) return 0;
    const all = this.panel.items.length, nth = this.panel.items.findIndex(other => other.label === item.label);
    return (nth - (all - 1) / 2) * .5 / all;
  }

  // Marks, whose shapes tell lines apart where colours do not.
  over(u) {
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left - 4 * ratio, bbox.top - 4 * ratio, bbox.width + 8 * ratio, bbox.height + 8 * ratio);
    ctx.clip();
    ctx.setLineDash([]);
    for (const {item, x, y} of this.lines) {
      if (item.dotted || this.state.hidden.has(item.label) || !x.length) continue;
      let chosen = x.map((_, i) => i);
      if (item.series != null) {
        const places = x.map(value => u.valToPos(value, "x", true)), count = Math.max(3, Math.round(bbox.width / ratio / 110));
        chosen = [...Array(count).keys()].map(n => bbox.left + (n + item.offset) / count * bbox.width)
          .map(wanted => places.findIndex(place => place >= wanted)).filter((i, n, all) => i >= 0 && all.indexOf(i) === n);
      }
      ctx.strokeStyle = ctx.fillStyle = colourOf(item);
      ctx.lineWidth = 2 * ratio;
      for (const i of chosen) {
        const path = new Path2D(markPath(item.colour, u.valToPos(x[i] + this.aside(item), "x", true), u.valToPos(y[i], "y", true), 4 * ratio));
        if (hollow(item.colour)) ctx.stroke(path); else ctx.fill(path);
      }
    }
    ctx.restore();
  }

  point(u) {
    const {left, top, idxs} = u.cursor;
    if (left < 0 || !idxs || u.cursor.event && u.cursor.event.type === "sync") { this.tip.hidden = true; return; }
    const rows = this.lines.map((line, i) => ({item: line.item, near: u.series[i + 1]._focus, index: idxs[i + 1],
      value: idxs[i + 1] == null ? null : this.data[i + 1][idxs[i + 1]]}))
      .filter(row => finite(row.value) && !this.state.hidden.has(row.item.label));
    if (!rows.length) { this.tip.hidden = true; return; }
    const gap = row => Math.abs(u.valToPos(row.value, row.item.scale) - top);
    rows.sort((a, b) => gap(a) - gap(b));
    const best = rows[0], few = rows.slice(0, 10).sort((a, b) => b.value - a.value);
    const x = this.data[0][best.index];
    const head = this.state.names ? this.state.names[x - 1] : `${this.state.xLabel} ${quantity(this.state.x, x)}`;
    this.tip.replaceChildren(make("div", {}, head), ...few.map(row => make("div", {class: row === best ? "near" : ""}, swatch(row.item),
      make("span", {}, row.item.label), make("b", {}, quantity(row.item.dotted ? this.figure.y2 : this.state.y, row.value)))));
    if (rows.length > few.length) this.tip.append(make("div", {}, `and ${rows.length - few.length} more`));
    this.tip.hidden = false;
    const {width, height} = u.over.getBoundingClientRect(), own = this.tip.getBoundingClientRect();
    this.tip.style.left = Math.max(0, left + own.width + 24 > width ? left - own.width - 14 : left + 14) + "px";
    this.tip.style.top = Math.max(0, Math.min(top - own.height / 2, height - own.height)) + "px";
  }

  select(u) {
    const {left, top, width, height} = u.select;
    if (width < 4 && height < 4) return;
    const view = {...this.state.view};
    if (width >= 4) view.x = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    if (height >= 4 && height < u.over.clientHeight - 1) view.y = [u.posToVal(top + height, "y"), u.posToVal(top, "y")];
    u.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
    this.group.look(view);
  }

  // The view moved by so many pixels, or made wider by a factor.
  moved(dx, dy, factor = 1) {
    const move = (scale, shift, length) => {
      const log = scale === "x" ? this.state.logX : this.state.logY, u = this.plot;
      const to = log ? Math.log : value => value, back = log ? Math.exp : value => value;
      const [low, high] = [u.scales[scale].min, u.scales[scale].max].map(to);
      const middle = (low + high) / 2 + shift / length * (high - low), half = (high - low) / 2 * factor;
      return [back(middle - half), back(middle + half)];
    };
    const {clientWidth, clientHeight} = this.plot.over;
    this.group.look({x: move("x", dx, clientWidth), y: move("y", dy, clientHeight)});
  }

  pan(event) {
    let {clientX, clientY} = event;
    const go = move => {
      this.moved(clientX - move.clientX, move.clientY - clientY);
      ({clientX, clientY} = move);
    };
    const end = () => ["pointermove", "pointerup", "pointercancel"].forEach((name, i) => removeEventListener(name, i ? end : go));
    ["pointermove", "pointerup", "pointercancel"].forEach((name, i) => addEventListener(name, i ? end : go));
  }

  key(event) {
    const step = {ArrowLeft: [-60, 0], ArrowRight: [60, 0], ArrowUp: [0, 40], ArrowDown: [0, -40]}[event.key];
    if (step) this.moved(...step);
    else if (event.key === "+" || event.key === "=") this.moved(0, 0, .7);
    else if (event.key === "-") this.moved(0, 0, 1 / .7);
    else if (event.key === "0") this.group.look({});
    else return;
    event.preventDefault();
  }
}

// The nearest place at which a series has a value.
function nearest(data, s, i) {
  const values = data[s], x = data[0];
  if (finite(values[i])) return i;
  let left = i, right = i;
  while (left >= 0 && !finite(values[left])) left--;
  while (right < values.length && !finite(values[right])) right++;
  if (left < 0 || right >= values.length) return left < 0 && right >= values.length ? null : left < 0 ? right : left;
  return x[i] - x[left] <= x[right] - x[i] ? left : right;
}

const metricOf = (data, name) => data.metrics.find(metric => metric.name === name);
function metricLabel(data, name) {
  const metric = metricOf(data, name);
  return metric ? metric.label + (metric.unit ? ` (${metric.unit})` : "") : null;
}
