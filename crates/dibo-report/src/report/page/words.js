// Numbers, units and small pieces of the page. Text from files goes in by textContent alone.
const COLUMNS = {iteration: "iterations", seconds: "time", bytes: "bytes sent", gradients: "gradients computed"};
// Okabe and Ito's colours; on a dark page lighter ones of the same hues.
const COLOURS = {
  light: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D"],
  dark: ["#4FA9DE", "#FF8A45", "#2CC49A", "#E6A3C8", "#F2B84B", "#9AD5F7", "#BDBDBD"],
};
const DASHES = [[], [9, 4], [9, 3, 2, 3], [5, 3]];
const darkness = matchMedia("(prefers-color-scheme: dark)");
const palette = () => COLOURS[darkness.matches ? "dark" : "light"];
const colourOf = item => palette()[item.colour % palette().length];
const dashOf = item => DASHES[item.dashes % DASHES.length];
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// [size, unit] in which a column is shown: value / size.
function unitOf(column, largest) {
  const pick = units => units.filter(([size]) => largest >= size).pop() || units[0];
  if (/bytes/.test(column)) return pick([[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"]]);
  if (column === "seconds") {
    if (largest >= 7200) return [3600, "h"];
    if (largest >= 300) return [60, "min"];
    return pick([[1e-6, "µs"], [1e-3, "ms"], [1, "s"]]);
  }
  return [1, ""];
}

const RAISED = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};

// A number with four digits, in powers of ten where that is shorter.
function number(value) {
  if (value == null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  return String(+value.toPrecision(4)).replace("-", "−");
}

function quantity(column, value) {
  if (value == null) return "–";
  const [size, unit] = unitOf(column, Math.abs(value));
  return number(value / size) + (unit ? " " + unit : "");
}

// Whether the ticks of an axis read better as powers of ten.
const powers = (log, low, high) => log && (low < .99e-3 || high > 1.01e4);

// What a tick says.
function tick(value, powers) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (powers || size < 1e-4 || size >= 1e9) {
    const power = Math.floor(Math.log10(size) + 1e-9);
    const digit = +(value / 10 ** power).toPrecision(3);
    const raised = "10" + [...String(power)].map(letter => RAISED[letter]).join("");
    return digit === 1 ? raised : digit + "·" + raised;
  }
  if (size >= 1e6) return +(value / 1e6).toPrecision(5) + "M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(5) + "k";
  return String(+value.toPrecision(5)).replace("-", "−");
}

// Round values of a linear axis: 1, 2 or 5 times a power of ten apart.
function roundSplits(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(digit => digit * power >= rough), splits = [];
  for (let nth = Math.ceil(low / step - 1e-9); nth * step <= high * (1 + 1e-9); nth++) splits.push(nth * step);
  return splits;
}

// Round values of a logarithmic axis.
function logSplits(low, high, most) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const decades = last - first, splits = [];
  if (decades < 2) {
    // Round ones first; others only where their words have room beside them.
    const room = Math.log10(high / low) / (2 * most);
    const near = value => splits.some(other => Math.abs(Math.log10(value / other)) < room);
    for (const digit of decades < 1 ? [1, 2, 5, 3, 1.5, 4, 7, 6, 8, 9] : [1, 2, 5])
      for (let power = first - 1; power <= last; power++)
        if (!near(digit * 10 ** power)) splits.push(digit * 10 ** power);
    splits.sort((one, other) => one - other);
  } else {
    const step = Math.ceil(decades / most);
    for (let power = first; power <= last; power += step) splits.push(10 ** power);
  }
  return splits.filter(value => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
}

// The path of a mark around (x, y): its shape goes with the colour.
function markPath(shape, x, y, r) {
  const polygon = corners => "M" + corners.map(([a, b]) => (x + a * r) + " " + (y + b * r)).join("L") + "Z";
  switch (shape % 7) {
    case 0: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1: return polygon([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]);
    case 2: return polygon([[0, -1.1], [1.1, .9], [-1.1, .9]]);
    case 3: return polygon([[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]]);
    case 4: return `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}`;
    case 5: return `M${x - r} ${y}L${x + r} ${y}M${x} ${y - r}L${x} ${y + r}`;
    default: return polygon([[0, 1.1], [1.1, -.9], [-1.1, -.9]]);
  }
}
const hollow = shape => shape % 7 === 4 || shape % 7 === 5;

// How a series looks, for legends.
function swatch(item) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  const add = (tag, attributes) => {
    const element = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    svg.append(element);
  };
  for (const [name, value] of [["width", 30], ["height", 12], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  const stroke = item.dotted ? css("--soft") : colourOf(item);
  const dash = item.dotted ? [2, 3] : dashOf(item);
  add("line", {x1: 0, y1: 6, x2: 30, y2: 6, stroke, "stroke-width": 2, "stroke-dasharray": dash.join(" ")});
  if (!item.dotted)
    add("path", {d: markPath(item.colour, 15, 6, 3.6), fill: hollow(item.colour) ? "none" : stroke, stroke,
      "stroke-width": hollow(item.colour) ? 2 : 0});
  return svg;
}

function save(blob, name) {
  const link = make("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
