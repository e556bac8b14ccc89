// The network of a run that goes on: a picture of who sends to whom, and a table of the processes.
function shape(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The agents on a circle. Arrows bend to one side, so that two opposite ones can be told apart.
function circle(now) {
  const count = now.agents, ring = count > 40 ? 165 : 155, middle = 180;
  const room = Math.min(13, .38 * 2 * Math.PI * ring / count), owner = new Map();
  now.processes.forEach((process, nth) => process.agents.forEach(agent => owner.set(agent, nth)));
  const colour = agent => owner.has(agent) ? palette()[owner.get(agent) % palette().length] : css("--soft");
  const place = agent => {
    const angle = 2 * Math.PI * agent / count - Math.PI / 2;
    return [middle + ring * Math.cos(angle), middle + ring * Math.sin(angle)];
  };
  const towards = ([x, y], [toX, toY], far) => {
    const length = Math.hypot(toX - x, toY - y) || 1;
    return [x + far * (toX - x) / length, y + far * (toY - y) / length];
  };
  const heads = [...new Set(now.links.map(([sender]) => colour(sender)))];
  const marker = (fill, nth) => shape("marker", {id: "head-" + nth, viewBox: "0 0 8 8", refX: 7, refY: 4,
    markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto"},
  shape("path", {d: "M0 1L8 4L0 7z", style: "fill:" + fill}));
  const arrow = ([sender, receiver]) => {
    const from = place(sender), to = place(receiver), [x, y] = from, [toX, toY] = to, bend = .12;
    const turn = [(x + toX) / 2 - bend * (toY - y), (y + toY) / 2 + bend * (toX - x)];
    const path = [towards(from, turn, room + 1), turn, towards(to, turn, room + 2)];
    const [start, over, end] = path.map(point => point.map(x => x.toFixed(1)).join(" "));
    const inside = owner.has(sender) && owner.get(sender) === owner.get(receiver);
    return shape("path", {d: `M${start}Q${over} ${end}`, class: inside ? "inside" : "",
      style: "stroke:" + colour(sender), "marker-end": `url(#head-${heads.indexOf(colour(sender))})`});
  };
  const dot = agent => {
    const [cx, cy] = place(agent), process = now.processes[owner.get(agent)];
    const words = `agent ${agent}` + (process ? `: ${process.doing}` : "");
    const parts = [shape("circle", {cx, cy, r: room, class: process?.waits ? "waits" : "",
      style: "stroke:" + colour(agent)}, shape("title", {}, words))];
    const size = Math.min(11, room * 1.1);
    if (count <= 40) parts.push(shape("text", {x: cx, y: cy, "font-size": size}, String(agent)));
    return parts;
  };
  // No more dots than can be seen.
  const shown = Math.min(count, 1000);
  const dots = Array.from({length: shown}, (_, nth) => Math.floor(nth * count / shown));
  return [shape("defs", {}, ...heads.map(marker)), ...now.links.map(arrow), ...dots.flatMap(dot)];
}

// One row for each process.
function member(process, nth) {
  const name = make("td", {class: "short"}, make("b", {class: "mark"}, "●"), process.name);
  name.firstChild.style.color = palette()[nth % palette().length];
  const behind = process.behind == null ? "a part" : String(process.behind);
  const heard = process.heard == null ? "–" : `${Math.round(process.heard)} s ago`;
  const again = `${process.lost} / ${process.resent}`, sent = quantity("bytes", process.sent);
  return make("tr", {}, name, make("td", {class: process.waits ? "label partly" : "label"}, process.doing),
    ...[process.round, behind, sent, again, heard].map(cell => make("td", {class: "right"}, String(cell))));
}

function network(now) {
  const id = name => document.getElementById(name), many = now.processes.length > 0;
  id("network").hidden = false;
  id("moment").textContent = `${now.about}: ${now.all} links.`;
  id("legend").textContent = "Arrows go from sender to receiver."
    + (now.every > 1 ? ` Drawn are those of one agent in ${now.every}.` : "")
    + (many ? " A colour is a process; dashed arrows stay within it, a dashed ring waits for others." : "");
  id("picture").replaceChildren(...circle(now));
  id("members").hidden = !many;
  id("members").querySelector("tbody").replaceChildren(...now.processes.map(member));
}
