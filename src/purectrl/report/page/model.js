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
  const known = xs.map((value, row) => [value, ys[row]]).filter(([a, b]) => a !== null && b !== null && b !== undefined);
  const held = known.length && xs.at(-1) > known.at(-1)[0];
  return held ? [...known, [xs.at(-1), known.at(-1)[1]]] : known;
}

const MOST_STEPS = 160;

/**
 * Mean and standard deviation over the finished runs of a group, where all of them have a value.
 * Before the first value of the slowest to start and after the last of the first to end there is no mean.
 */
function meanOf(runs, x, y) {
  const courses = runs.filter((run) => run.finished).map((run) => points(run, x, y));
  if (courses.length < 2 || courses.some((course) => !course.length)) return null;
  const from = Math.max(...courses.map((course) => course[0][0]));
  const to = Math.min(...courses.map((course) => course.at(-1)[0]));
  let places = [...new Set(courses.flatMap((course) => course.map(([at]) => at)))].filter((at) => at >= from && at <= to).sort((a, b) => a - b);
  if (places.length > MOST_STEPS) {
    const kept = new Set();
    for (let n = 0; n < MOST_STEPS / 2; n++) {
      kept.add(Math.round((n / (MOST_STEPS / 2 - 1)) * (places.length - 1)));
      kept.add(Math.round(places.length ** (n / (MOST_STEPS / 2 - 1)) - 1));
    }
    places = places.filter((_, n) => kept.has(n));
  }
  return places.map((at) => {
    const values = courses.map((course) => heldAt(course, at));
    const { mean, spread } = moments(values);
    return { at, mean, spread, count: values.length };
  });
}

/** Mean and standard deviation (n − 1) of numbers; no spread of a single one. */
function moments(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  if (values.length < 2) return { mean, spread: null };
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: Math.sqrt(squares / (values.length - 1)) };
}

/** "0.978 ± 0.012", "0.978" of one run; a dash where a run does not say, since a mean of the others would pass for one of all. */
function meanText(runs, read) {
  const values = runs.filter((run) => run.finished).map(read);
  if (!values.length || values.some((value) => typeof value !== "number" && typeof value !== "boolean")) return "–";
  if (values.every((value) => typeof value === "boolean")) return `${values.filter(Boolean).length} of ${values.length}`;
  const { mean, spread } = moments(values.map(Number));
  return spread ? withSpread(mean, spread) : number(mean);
}

const runName = (run) => `${DATA.groups[run.group].label}, seed ${run.seed}`;
const longName = (run) => `${DATA.groups[run.group].experiment}, ${runName(run)}`;
