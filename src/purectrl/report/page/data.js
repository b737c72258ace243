/* The runs, which of them are shown, and means over them. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const COSTS = ["measurements", "rollouts", "updates", "seconds"];

const groupLabels = [...new Set(DATA.groups.map((group) => group.label))];
// an algorithm has the same color in every chart
DATA.groups.forEach((group) => { group.style = seriesStyle(groupLabels.indexOf(group.label)); });
DATA.runs.forEach((run, index) => { Object.assign(run, { index, group: DATA.groups[run.group] }); });

const byProblem = (runs) => [...Map.groupBy(runs, (run) => run.group.problem)];
const byGroup = (runs) => [...Map.groupBy(runs, (run) => run.group)];
const runName = (run) => `${run.group.label}, seed ${run.seed}`;
const fullName = (run) => `${run.group.problem}, ${runName(run)}`;
const hasColumn = (run, column) => run.curves[column]?.some((value) => value !== null) ?? false;
const costOf = (run, name) => (name === "seconds" ? run.ledger.seconds.total : run.ledger[name]);

/** The column that measures how good the policies of these runs are, if they have one. The problem may name it. */
const resultColumn = (runs) => runs.find((run) => run.group.result)?.group.result
  ?? DATA.result_columns.find((name) => runs.some((run) => hasColumn(run, name)));

// regret is read on logarithmic axes, rewards are not
const logarithmic = byProblem(DATA.runs).every(([, runs]) => resultColumn(runs) === "average_gap");
const state = {
  hidden: new Set(), // group labels that are switched off in the legend
  x: null, y: "result", logX: logarithmic, logY: logarithmic, individual: true, run: 0, updatesAxis: "measurements",
  phase: [0, 1], // the coordinates of the phase plot
};

/** The runs that pass the filters, and those of them that are not switched off in the legend. */
function filteredRuns() {
  const checked = (name) => new Set([...document.querySelectorAll(`[name=${name}]:checked`)].map((box) => box.value));
  const [problems, algorithms, seeds] = ["problem", "algorithm", "seed"].map(checked);
  return DATA.runs.filter(({ group, seed }) =>
    problems.has(group.problem) && algorithms.has(group.algorithm) && seeds.has(String(seed)));
}
const shownRuns = () => filteredRuns().filter((run) => !state.hidden.has(run.group.label));

/** The points of a run at which both columns are known. The last value holds up to the current end of the run. */
function curvePoints(run, x, y) {
  const [xs, ys] = [run.curves[x] ?? [], run.curves[y] ?? []];
  const known = (point) => point.x !== null && point.y !== null;
  const points = xs.map((value, row) => ({ x: value, y: ys[row] ?? null })).filter(known);
  const last = points.at(-1);
  return last && xs.at(-1) > last.x ? [...points, { x: xs.at(-1), y: last.y }] : points;
}

/**
 * Mean and standard deviation over the finished runs of a group, from where each of them has a value; null if there are
 * fewer than two. A run that has ended keeps its last value.
 */
function meanCurve(runs, x, y) {
  const curves = runs.filter((run) => run.finished).map((run) => curvePoints(run, x, y));
  if (curves.length < 2 || curves.some((curve) => !curve.length)) return null;
  const [positions, ...columns] = uPlot.join(curves.map(xyColumns));
  const current = columns.map(() => undefined); // the last known value of each run
  return positions.flatMap((position, row) => {
    columns.forEach((column, n) => { current[n] = column[row] ?? current[n]; });
    if (current.includes(undefined)) return [];
    const { mean, deviation } = moments(current);
    return [{ x: position, y: mean, deviation }];
  });
}

/** Mean and sample standard deviation (n − 1); the deviation of a single number is NaN. */
function moments(values) {
  const sum = (numbers) => numbers.reduce((total, value) => total + value, 0);
  const mean = sum(values) / values.length;
  return { mean, deviation: Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / (values.length - 1)) };
}

/** The finished runs; without any, all of them, of which the newest values are known. */
const finishedRuns = (runs) => (runs.some((run) => run.finished) ? runs.filter((run) => run.finished) : runs);

/** "0.978 ± 0.012" over finished runs; a dash if any run lacks the value, since the mean would silently skip it. */
function meanText(runs, read) {
  const values = finishedRuns(runs).map(read);
  const [type, ...otherTypes] = new Set(values.map((value) => typeof value));
  if (otherTypes.length || !["boolean", "number"].includes(type)) return "–";
  if (type === "boolean") return `${values.filter(Boolean).length} of ${values.length}`;
  const { mean, deviation } = moments(values);
  if (!deviation) return number(mean);
  const digits = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(deviation))));
  const text = (value) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${text(mean)} ± ${text(deviation)}`;
}
