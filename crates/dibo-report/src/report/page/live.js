// The page of a run that goes on: asks for news, draws them, and passes the wishes to stop and to keep a checkpoint.
const STOPPED = "stopped, the same command goes on";
function watch() {
  const id = name => document.getElementById(name), bar = id("bar"), stop = id("stop"), keep = id("keep");
  let failed = 0, timer = 0, turn = 0, asked = "", last = "";
  const over = words => {
    id("state").textContent = `${words}; what it left lies in ${document.body.dataset.live}`;
    stop.disabled = keep.disabled = true;
  };
  const clock = seconds => seconds < 100 ? `${Math.round(seconds)} s` : seconds < 6000 ? `${Math.round(seconds / 60)} min`
    : `${(seconds / 3600).toFixed(1)} h`;
  const news = async () => {
    let pause = 1000;
    const mine = ++turn;
    try {
      const reply = await fetch("data", {cache: "no-store"});
      if (!reply.ok) throw new Error(String(reply.status));
      const now = await reply.json();
      // Another question is under way, and one chain of them is enough.
      if (mine !== turn) return;
      failed = 0;
      last = now.state;
      ({pause} = now);
      bar.max = Math.max(1, now.total);
      bar.value = now.done;
      // What an earlier run did took none of this one's time.
      const ours = now.done - now.found;
      const left = ours > 0 ? now.seconds * (now.total - now.done) / ours : NaN;
      const part = now.total ? Math.floor(100 * now.done / now.total) : 0;
      id("state").textContent = now.state === "running"
        ? `${part} % · ${now.message} · ${clock(now.seconds)} gone` + (Number.isFinite(left) ? ` · about ${clock(left)} to go` : "")
        : now.state === "stopping" ? "stopping: every run ends at its next evaluation and keeps what is done" : now.state;
      stop.disabled = keep.disabled = now.state !== "running";
      id("kept").textContent = now.kept === null ? asked : `state kept ${clock(now.kept)} ago`;
      id("said").replaceChildren(...now.said.map(line => make("p", {class: "warning"}, line)));
      id("runs").replaceChildren(...now.runs.map(run => make("tr", {}, ...run.map((cell, i) =>
        make("td", {class: i ? "right" : "label"}, String(cell))))));
      id("going").hidden = !now.runs.length;
      if (now.network) network(now.network);
      for (const figure of now.data.figures)
        if (figure && !document.querySelector(`[data-figure="${CSS.escape(figure.name)}"]`)) {
          const host = make("figure", {class: "plot"}, make("figcaption", {}, figure.label));
          host.dataset.figure = figure.name;
          id("later").before(host);
        }
      // Axes without a curve would only take room.
      const drawn = now.data.series.some(series => series.iteration.length);
      document.querySelectorAll("figure.plot").forEach(figure => { figure.hidden = !drawn; });
      id("later").hidden = drawn;
      if (drawn) show(now.data);
      if (now.report) return location.replace("report.html");
      if (now.state === "stopped") return over(STOPPED);
    } catch (error) {
      if (mine !== turn) return;
      // One that was asked to stop has done so; else the answer may only have been late.
      if (++failed > 3 || last === "stopping") return over(last === "stopping" ? STOPPED : "the run has ended");
    }
    timer = setTimeout(news, pause);
  };
  keep.addEventListener("click", async () => {
    const reply = await fetch("keep", {method: "POST"}).catch(() => null);
    id("kept").textContent = asked = reply && reply.ok ? "at the next evaluation" : "";
  });
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    await fetch("stop", {method: "POST"}).catch(() => {});
    clearTimeout(timer);
    news();
  });
  news();
}
if (document.body.dataset.live) watch();
