/* The overview, learning curves and coverage. A section takes the shown runs and returns a node, or null. */

const columnLabel = (name) => DATA.column_labels[name] ?? name?.replaceAll("_", " ") ?? "no result";
const metricLabel = (name) => DATA.metric_labels[name] ?? name.replaceAll("_", " ");

function overview(runs) {
  const tables = byProblem(runs).flatMap(([problem, members]) => {
    const { criterion } = members[0].group;
    const replaced = criterion ? "solved" : "criterion_met"; // a problem that states its criterion replaces the word
    const metrics = DATA.headline_metrics.filter((name) =>
      name !== replaced && members.some((run) => run.metrics[name] !== undefined));
    const label = (name) => (name === "criterion_met" ? criterion : metricLabel(name));
    const rows = byGroup(members).map(([group, own]) => {
      const finished = own.filter((run) => run.finished).length;
      return [
        groupName(group),
        finished === own.length ? finished : `${finished} of ${own.length}`,
        ...metrics.map((name) => meanText(own, (run) => run.metrics[name])),
        ...COSTS.map((name) => meanText(own, (run) => costOf(run, name))),
      ];
    });
    const columns = ["algorithm", "finished runs", ...metrics.map(label), ...COSTS];
    return [element("h3", {}, problem), table(columns, rows, "cards")];
  });
  const about = "Means over finished runs, ± one standard deviation over seeds. Where no run has finished, the newest values. "
    + "The standard error is that of one run, over its evaluation episodes.";
  return section("overview", "Overview", about, ...tables);
}

function learningCurves(runs) {
  const problems = byProblem(runs);
  const axis = state.x ?? (problems.length === 1 && window.innerWidth > 640 ? "all four" : "measurements");
  const charts = problems.flatMap(([problem, members]) => (axis === "all four" ? COSTS : [axis]).map((x) => {
    const y = state.y === "result" ? resultColumn(members) : state.y;
    return curveChart(`${problem}: ${columnLabel(y)} against ${x}`, members, x, y);
  }));
  const about = "A value holds until the next one. Thick lines are means over finished runs, drawn from where each run has "
    + "a value; a run that has ended keeps its last value. Bands are ± one standard deviation, thin lines single runs. "
    + "Drag across a chart to zoom in, double-click to zoom out.";
  return section("curves", "Learning curves", about, curveControls(runs, axis), legend(), panels(charts));
}

const NOT_PLOTTED = new Set([...COSTS, "step", "updated", "episodes", "evaluation_rollouts"]);

function curveControls(runs, axis) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.curves)));
  const columns = ["result", ...[...names].filter((name) => !NOT_PLOTTED.has(name))];
  const textOf = (name) => (name === "result" ? "result of each problem" : columnLabel(name));
  const flag = (text, name) => toggle(text, state[name], () => change({ [name]: !state[name] }));
  return controls(
    select("show", columns, state.y, (y) => change({ y }), textOf),
    choice("against", ["all four", ...COSTS], axis, (x) => change({ x })),
    element("span", {}, flag("log x", "logX"), flag("log y", "logY"), flag("single runs", "individual")));
}

/** A chart of one column against a cost: a mean per group with several finished runs, and single runs. */
function curveChart(title, runs, x, y, { single = state.individual, bands = true, log = state.logY, range } = {}) {
  const series = byGroup(runs).flatMap(([group, own]) => {
    const mean = meanCurve(own, x, y);
    const line = (name, points, more) => ({ kind: "line", style: group.style, name, points, ...more });
    const lines = own.map((run) => line(runName(run), curvePoints(run, x, y), { faint: Boolean(mean) }));
    if (!mean) return lines;
    const summary = `mean of ${own.filter((run) => run.finished).length} runs, ${lineSummary({ points: mean })}`;
    const points = bands ? mean : mean.map((point) => ({ ...point, deviation: null }));
    return [...(single ? lines : []), line(group.label, points, { summary })];
  });
  const missing = runs.filter((run) => !hasColumn(run, y)).length;
  const nonpositive = log && series.some(({ points }) => points.some((point) => point.y <= 0));
  const note = joined([
    missing && `${counted(missing, "run")} did not record it`, nonpositive && "values that are not positive are not drawn",
  ]);
  return chart({ title, note, series, cursor: true, x: { label: x, log: state.logX }, y: { label: "value", log, range } });
}

function coverage(runs) {
  const column = "covered_so_far";
  const problems = byProblem(runs).filter(([, members]) => members.some((run) => hasColumn(run, column)));
  if (!problems.length) return null;
  const options = { single: false, bands: false, log: false, range: [-0.03, 1.03] };
  const charts = problems.map(([problem, members]) =>
    curveChart(`${problem}: share of runs covered so far`, members, "measurements", column, options));
  const about = "A run is covered if both confidence sets have contained the truth after every episode up to here.";
  return section("coverage", "Coverage of the confidence sets", about, panels(charts));
}
