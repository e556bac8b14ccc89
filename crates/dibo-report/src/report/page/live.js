// The page of a run that goes on: asks for news, draws them, and passes the wish to stop.
function watch() {
  const id = name => document.getElementById(name), bar = id("bar"), stop = id("stop");
  let failed = 0, timer = 0;
  const clock = seconds => seconds < 100 ? `${Math.round(seconds)} s` : seconds < 6000 ? `${Math.round(seconds / 60)} min`
    : `${(seconds / 3600).toFixed(1)} h`;
  const news = async () => {
    let pause = 1000;
    try {
      const reply = await fetch("data", {cache: "no-store"});
      if (!reply.ok) throw new Error(String(reply.status));
      const now = await reply.json();
      failed = 0;
      ({pause} = now);
      bar.max = Math.max(1, now.total);
      bar.value = now.done;
      const left = now.done > 0 ? now.seconds * (now.total - now.done) / now.done : NaN;
      const part = now.total ? Math.floor(100 * now.done / now.total) : 0;
      id("state").textContent = now.state === "running"
        ? `${part} % · ${now.message} · ${clock(now.seconds)} gone` + (Number.isFinite(left) ? ` · about ${clock(left)} to go` : "")
        : now.state === "stopping" ? "stopping: every run ends at its next evaluation and keeps what is done" : now.state;
      stop.disabled = now.state !== "running";
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
    } catch (error) {
      if (++failed > 3) {
        id("state").textContent = "the run has ended; what it left lies in " + document.body.dataset.live;
        stop.disabled = true;
        return;
      }
    }
    timer = setTimeout(news, pause);
  };
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    await fetch("stop", {method: "POST"}).catch(() => {});
    clearTimeout(timer);
    news();
  });
  news();
}
if (document.body.dataset.live) watch();
