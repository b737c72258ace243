/* The runs, which of them are shown, and means over them. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const CURRENCIES = ["measurements", "rollouts", "updates", "seconds"];
const FILTERS = {
  experiment: (run) => DATA.groups[run.group].experiment,
  algorithm: (run) => DATA.groups[run.group].algorithm,
  seed: (run) => run.seed,
};
DATA.runs.forEach((run, index) => { run.index = index; });

const labels = [...new Set(DATA.groups.map((group) => group.label))];
/** One look for a label wherever it appears, so that an algorithm keeps its colour across experiments. */
DATA.groups.forEach((group, index) => { group.index = index; group.look = look(labels.indexOf(group.label)); });

const state = {
  left: { experiment: new Set(), algorithm: new Set(), seed: new Set() }, // what the reader has filtered out
  hidden: new Set(), // labels that the reader has switched off
  x: null, y: "result", logX: false, logY: false, lines: true, run: 0, strip: "measurements",
};

/** The values that a filter offers, in the order of the runs; seeds by size. */
function choices(name) {
  const found = [...new Set(DATA.runs.map(FILTERS[name]))];
  return name === "seed" ? found.sort((a, b) => a - b) : found;
}

function chosen(run) {
  return Object.entries(FILTERS).every(([name, of]) => !state.left[name].has(of(run)));
}

/** The runs that pass the filters, and of those the ones that are not switched off in the legend. */
const chosenRuns = () => DATA.runs.filter(chosen);
const shownRuns = () => chosenRuns().filter((run) => !state.hidden.has(DATA.groups[run.group].label));

/** Runs by group, groups in their order. */
function byGroup(runs) {
  const found = new Map();
  for (const run of runs) found.set(run.group, [...(found.get(run.group) ?? []), run]);
  return [...found].sort(([a], [b]) => a - b).map(([index, members]) => ({ group: DATA.groups[index], runs: members }));
}

function byExperiment(runs) {
  const found = new Map();
  for (const run of runs) {
    const name = FILTERS.experiment(run);
    found.set(name, [...(found.get(name) ?? []), run]);
  }
  return [...found];
}

/** The column that says how good an experiment's policies are. */
const RESULTS = ["test_return", "test_reward", "average_gap", "reward"];
function resultOf(runs) {
  return RESULTS.find((name) => runs.some((run) => has(run, name))) ?? null;
}

function has(run, column) {
  return run.course[column]?.some((value) => value !== null) ?? false;
}

// regret is read on logarithmic axes, rewards are not
state.logX = state.logY = byExperiment(DATA.runs).every(([, runs]) => resultOf(runs) === "average_gap");

/** The points [x, y] of a run where both are known; the last value holds to where the run is now. */
function points(run, x, y) {
  const [xs, ys] = [run.course[x] ?? [], run.course[y] ?? []];
  const known = xs.map((value, row) => [value, ys[row] ?? null]).filter(([a, b]) => a !== null && b !== null);
  const held = known.length && xs.at(-1) > known.at(-1)[0];
  return held ? [...known, [xs.at(-1), known.at(-1)[1]]] : known;
}

const MOST_STEPS = 160;

/**
 * Mean and standard deviation over the finished runs of a group, from where all of them have a value.
 * A run that has ended keeps its last value: what it learned does not go away while slower ones go on.
 */
function meanOf(runs, x, y) {
  const courses = runs.filter((run) => run.finished).map((run) => points(run, x, y));
  if (courses.length < 2 || courses.some((course) => !course.length)) return null;
  const from = Math.max(...courses.map((course) => course[0][0]));
  const all = new Set(courses.flatMap((course) => course.map(([at]) => at)));
  const places = [...all].filter((at) => at >= from).sort((a, b) => a - b);
  return thinned(places).map((at) => {
    const values = courses.map((course) => heldAt(course, at));
    const { mean, spread } = moments(values);
    return { at, mean, spread, count: values.length };
  });
}

/** Some of many places, evenly and logarithmically, both ends among them. */
function thinned(places) {
  if (places.length <= MOST_STEPS) return places;
  const kept = new Set();
  for (let n = 0; n < MOST_STEPS / 2; n++) {
    const share = n / (MOST_STEPS / 2 - 1);
    kept.add(Math.round(share * (places.length - 1)));
    kept.add(Math.round(places.length ** share - 1));
  }
  return places.filter((_, n) => kept.has(n));
}

/** Mean and standard deviation (n − 1) of numbers; no spread of a single one. */
function moments(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  if (values.length < 2) return { mean, spread: null };
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: Math.sqrt(squares / (values.length - 1)) };
}

/** "0.978 ± 0.012"; a dash if a run does not say, since a mean of the others would pass for one of all. */
function meanText(runs, read) {
  const values = runs.filter((run) => run.finished).map(read);
  const kinds = new Set(values.map((value) => typeof value));
  if (kinds.size !== 1) return "–";
  if (kinds.has("boolean")) return `${values.filter(Boolean).length} of ${values.length}`;
  if (!kinds.has("number")) return "–";
  const { mean, spread } = moments(values);
  return spread ? withSpread(mean, spread) : number(mean);
}

const runName = (run) => `${DATA.groups[run.group].label}, seed ${run.seed}`;
const longName = (run) => `${DATA.groups[run.group].experiment}, ${runName(run)}`;
