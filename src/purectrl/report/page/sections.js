/* What came out, and what each currency buys. A section takes the shown runs and returns a node, or null. */

const HEADLINES = [
  "return", "reward", "reward_min", "solved", "gap", "gap_last", "covered", "second_opinion", "kl_pretrained",
];
const METRICS = { gap: "average gap", covered: "covered throughout", gap_last: "gap of the last plan" };
const metricName = (name) => METRICS[name] ?? name.replaceAll("_", " ");
const spent = (run, name) => (name === "seconds" ? run.ledger.seconds.total : run.ledger[name]);

function glance(runs) {
  const parts = byExperiment(runs).flatMap(([experiment, members]) => {
    const metrics = HEADLINES.filter((name) => members.some((run) => name in run.metrics));
    const columns = ["algorithm", "finished runs", ...metrics.map(metricName), ...CURRENCIES];
    const rows = byGroup(members).map(({ group, runs: own }) => glanceRow(group, own, metrics));
    return [element("h3", {}, experiment), scrolled(table(columns, rows, "cards"))];
  });
  const about = "Means over finished runs, ± one standard deviation over seeds.";
  return section("glance", "At a glance", about, ...parts);
}

function glanceRow(group, runs, metrics) {
  const done = runs.filter((run) => run.finished).length;
  return [
    named(group),
    done === runs.length ? number(done) : `${done} of ${runs.length}`,
    ...metrics.map((name) => meanText(runs, (run) => run.metrics[name])),
    ...CURRENCIES.map((name) => meanText(runs, (run) => spent(run, name))),
  ];
}

const NO_RESULTS = new Set([...CURRENCIES, "step", "updated", "episodes", "evaluation_rollouts"]);

function currencies(runs) {
  const experiments = byExperiment(runs);
  const wide = experiments.length === 1 && window.innerWidth > 640;
  const axis = state.x ?? (wide ? "all" : "measurements");
  const shown = axis === "all" ? CURRENCIES : [axis];
  const charts = experiments.flatMap(([experiment, members]) => shown.map((x) => coursePanel(experiment, members, x)));
  const about = "A value holds until the next one. Thick lines are means over finished runs, from where all of them have "
    + "a value; one that has ended keeps its last. Bands are ± one standard deviation, thin lines single runs.";
  return section("currencies", "What each currency buys", about, courseControls(runs, axis), legend(), panels(charts));
}

function courseControls(runs, axis) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.course)));
  const offered = ["result", ...[...names].filter((name) => !NO_RESULTS.has(name))];
  const say = (name) => (name === "result" ? "the result of each experiment" : spoken(name));
  const axes = ["all", ...CURRENCIES];
  return controls(
    element("label", {}, "show ", pick(offered, state.y, (y) => change({ y }), say)),
    choice("against", axes, axis, (x) => change({ x }), (name) => (name === "all" ? "all four" : name)),
    element("span", {},
      press("log x", state.logX, () => change({ logX: !state.logX })),
      press("log y", state.logY, () => change({ logY: !state.logY })),
      press("single runs", state.lines, () => change({ lines: !state.lines }))));
}

function coursePanel(experiment, runs, x) {
  const y = state.y === "result" ? resultOf(runs) : state.y;
  const title = `${experiment}: ${y ? spoken(y) : "nothing recorded"} against ${x}`;
  const series = y ? byGroup(runs).flatMap(({ group, runs: own }) => groupSeries(group, own, x, y)) : [];
  const zeros = state.logY && series.some((one) => one.points.some(([, value]) => value <= 0));
  const notes = [
    silence(runs, y),
    zeros ? "values that are not above 0 are not drawn" : null,
  ];
  return chart({
    title, series,
    note: notes.filter(Boolean).join("; "),
    words: `${title}. ${inWords(series)}`,
    x: { label: x, log: state.logX },
    y: { log: state.logY },
    table: () => seriesTable(series, x),
  });
}

/** How many runs have nothing to show in a chart of this column, in words; null if all have. */
function silence(runs, column) {
  const silent = runs.filter((run) => !column || !has(run, column)).length;
  return silent ? `${counted(silent, "run")} did not record it` : null;
}

/** The lines of one group: its mean if there are several finished runs, and the runs, thin if there is a mean. */
function groupSeries(group, runs, x, y) {
  const mean = meanOf(runs, x, y);
  const common = { type: "line", look: group.look };
  const line = (run) => ({ ...common, name: runName(run), faint: Boolean(mean), points: points(run, x, y) });
  const single = runs.map(line);
  if (!mean) return single;
  const middle = {
    ...common,
    name: group.label,
    count: mean[0]?.count,
    points: mean.map((place) => [place.at, place.mean]),
    band: mean.map((place) => [place.at, place.mean - place.spread, place.mean + place.spread]),
  };
  return state.lines ? [...single, middle] : [middle];
}

const MOST_WORDS = 12;

/** What a chart shows, for those who do not see it. */
function inWords(series) {
  const main = series.filter((one) => one.type === "line" && !one.faint && one.points.length);
  if (!main.length) return "Nothing was recorded.";
  return main.slice(0, MOST_WORDS).map((one) => {
    const [[from, first], [to, last]] = [one.points[0], one.points.at(-1)];
    const over = one.count ? ` (mean of ${one.count} runs)` : "";
    return `${one.name}${over}: from ${number(first)} at ${number(from)} to ${number(last)} at ${number(to)}.`;
  }).join(" ");
}

function seriesTable(series, x) {
  const lines = series.filter((one) => one.type === "line");
  const spread = (one, n) => (one.band ? (one.band[n][2] - one.band[n][1]) / 2 : null);
  const rows = lines.flatMap((one) => one.points.map(([at, value], n) => [one.name, at, value, spread(one, n)]));
  return { columns: ["line", x, "value", "± standard deviation"], rows };
}
