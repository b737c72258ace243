/* What happened on the way: when a run measured, when it updated and why, and whether it covered the truth. */

function measured(runs) {
  const timed = runs.filter((run) => run.times);
  if (!timed.length) return null;
  const run = picked(timed);
  const about = "The times along an episode at which the state was looked at.";
  const charts = panels([timesChart(run), timesHistogram(run)]);
  return section("measured", "When it measured", about, runPicker(timed, run), charts);
}

const timeAxis = ({ horizon }) => ({ label: "time along the episode", domain: [0, horizon] });

function timesChart(run) {
  const { horizon, ticks: parts, total, m, episodes, times } = run.times;
  const seen = times.flatMap((row, n) => row.map((tick) => [(tick / parts) * horizon, episodes[n]]));
  const all = counted(total, "episode");
  const some = episodes.length < total ? `${number(episodes.length)} of ${all}, evenly chosen` : all;
  return chart({
    title: `Episode by episode: ${longName(run)}`,
    note: `${some}, ${counted(m, "measurement")} in each`,
    words: `Times of measurements of ${longName(run)}: ${some}, ${m} in each, between 0 and ${number(horizon)}.`,
    x: timeAxis(run.times),
    y: {},
    series: [{ type: "dots", look: DATA.groups[run.group].look, points: seen, size: seen.length > 1500 ? 1.8 : 3.2 }],
    table: () => ({ columns: ["episode", "time"], rows: seen.map(([time, episode]) => [episode, time]) }),
  });
}

function timesHistogram(run) {
  const { horizon, histogram } = run.times;
  const width = horizon / histogram.length;
  const bars = histogram.map((count, n) => [(n + 0.5) * width, count]);
  const [least, most] = extent(histogram);
  return chart({
    title: "All episodes together",
    note: "measurements in each fiftieth of an episode",
    words: `All times of ${longName(run)}: ${number(least)} to ${number(most)} measurements in each fiftieth of an episode.`,
    x: timeAxis(run.times),
    y: { domain: [0, most * 1.05] },
    series: [{ type: "bars", look: DATA.groups[run.group].look, points: bars }],
    table: () => ({ columns: ["time", "measurements"], rows: bars }),
  });
}

const MOST_STRIPS = 40;
const KINDS = ["drift", "reward", "both"];

function updated(runs) {
  const axes = CURRENCIES.filter((name) => name !== "updates");
  const rules = byGroup(runs).map(({ group }) => [named(group, `${group.experiment}, ${group.label}`), group.rule]);
  const strips = byExperiment(runs).map(([experiment, members]) => updateStrips(experiment, members, state.strip));
  return section("updated", "When it updated, and why", null,
    scrolled(table(["algorithm", "updates"], rules, "words")),
    controls(choice("against", axes, state.strip, (strip) => change({ strip }))),
    panels(strips),
    ...misfit(runs));
}

/** The updates of a run: where, and which model. */
function updatesOf(run, axis) {
  const all = (run.course.updated ?? []).map((which, n) => ({ at: run.course[axis][n], which, row: n }));
  return all.filter(({ which }) => which);
}

/** A row for each run, a tick for each update. */
function updateStrips(experiment, runs, axis) {
  const shown = runs.slice(0, MOST_STRIPS);
  const marks = shown.map((run) => updatesOf(run, axis));
  const names = shown.map(runName);
  const [, most] = extent(runs.map((run) => spent(run, axis)));
  const counts = shown.map((run) => `${runName(run)}: ${counted(run.ledger.updates, "update")}`);
  const crowded = shown.filter((run, row) => marks[row].length < run.ledger.updates).length;
  const notes = [
    runs.length > MOST_STRIPS ? `the first ${MOST_STRIPS} of ${runs.length} runs; filter to see others` : null,
    crowded ? `${counted(crowded, "run")} with more updates than fit here: a tick may stand for several` : null,
  ];
  return chart({
    title: `${experiment}: updates against ${axis}`,
    note: notes.filter(Boolean).join("; "),
    words: `Updates of each run of ${experiment}. ${counts.join(". ")}.`,
    x: { label: axis, log: state.logX, domain: state.logX ? undefined : [0, most] },
    y: { names },
    series: shown.map((run, row) => ({
      type: "ticks", look: DATA.groups[run.group].look, points: marks[row].map(({ at }) => [at, row]),
    })),
    table: () => ({
      columns: ["run", axis, "updated"],
      rows: marks.flatMap((own, row) => own.map(({ at, which }) => [names[row], at, KINDS[which - 1]])),
    }),
  });
}

const MODELS = [
  { column: "excess_drift", name: "drift", bit: 1 },
  { column: "excess_reward", name: "reward", bit: 2 },
];

/** Excess loss against the threshold of Algorithm 2, where a run recorded it. */
function misfit(runs) {
  const watched = runs.filter((run) => has(run, "excess_drift"));
  if (!watched.length) return [];
  const run = picked(watched);
  const { threshold } = DATA.groups[run.group];
  const series = MODELS.flatMap(({ column, name, bit }, index) => {
    const due = updatesOf(run, "measurements").filter(({ which }) => which & bit);
    const marks = due.map(({ at, row }) => [at, run.course[column]?.[row] ?? null]);
    return [
      { type: "line", name, look: look(index), points: points(run, "measurements", column) },
      { type: "dots", look: look(index), points: marks, size: 7, opacity: 1 },
    ];
  });
  const title = `Why: excess loss against the threshold, ${longName(run)}`;
  const swatch = (index) => element("span", { class: "swatch", style: `background: ${look(index).colour}` });
  return [
    element("h3", {}, "Excess loss"),
    runPicker(watched, run),
    element("div", { class: "legend" }, MODELS.map(({ name }, index) => element("span", {}, swatch(index), name))),
    chart({
      title, series,
      note: "in units of the confidence radius β; a dot is an update of that model; where records were thinned out, "
        + "the largest of them",
      words: `${title}: ${counted(run.ledger.updates, "update")}. ${inWords(series)}`,
      x: { label: "measurements", log: state.logX },
      y: { log: state.logY },
      rules: threshold === null ? [] : [{ y: threshold, label: `update at ${number(threshold)} β` }],
      table: () => seriesTable(series, "measurements"),
    }),
  ];
}

function coverage(runs) {
  const recorded = ([, members]) => members.some((run) => has(run, "covered_so_far"));
  const experiments = byExperiment(runs).filter(recorded);
  if (!experiments.length) return null;
  const about = "Whether both confidence sets contained the truth after every episode up to here.";
  const charts = experiments.map(([experiment, members]) => coveragePanel(experiment, members));
  return section("coverage", "Coverage", about, panels(charts));
}

function coveragePanel(experiment, runs) {
  const [x, y] = ["measurements", "covered_so_far"];
  const lines = byGroup(runs).flatMap(({ group, runs: own }) => groupSeries(group, own, x, y));
  const series = lines.filter((one) => !one.faint).map((one) => ({ ...one, band: undefined }));
  const title = `${experiment}: share of runs that covered the truth so far`;
  return chart({
    title, series,
    note: silence(runs, y) ?? "",
    words: `${title}. ${inWords(series)}`,
    x: { label: x, log: state.logX },
    y: { domain: [-0.03, 1.03] },
    table: () => seriesTable(series, x),
  });
}
