/* What is on the page, section by section. Each takes the shown runs and returns nodes, or null if it has nothing to say. */

function table(columns, rows, kind = "") {
  return element("table", { class: kind },
    element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, n) => element("td", { "data-label": columns[n] }, cell))))));
}

const scrolled = (node) => element("div", { class: "scroll" }, node);

function section(id, title, about, ...nodes) {
  return element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title),
    about ? element("p", { class: "soft" }, about) : null, ...nodes);
}

function named(group, text = group.label) {
  return element("span", {}, element("span", { class: "dot", style: `background: ${group.look.colour}` }), text);
}

/* ---- at a glance ---- */

const HEADLINES = ["return", "reward", "reward_min", "solved", "gap", "gap_last", "covered", "second_opinion", "kl_pretrained"];

function glance(runs) {
  const parts = byExperiment(runs).flatMap(([experiment, members]) => {
    const metrics = HEADLINES.filter((name) => members.some((run) => name in run.metrics));
    const rows = byGroup(members).map(({ group, runs: own }) => {
      const done = own.filter((run) => run.finished).length;
      return [named(group), done === own.length ? number(done) : `${done} of ${own.length}`,
        ...metrics.map((name) => meanText(own, (run) => run.metrics[name])),
        ...CURRENCIES.map((name) => meanText(own, (run) => spent(run, name)))];
    });
    return [element("h3", {}, experiment),
      scrolled(table(["algorithm", "finished runs", ...metrics.map(metricName), ...CURRENCIES], rows, "cards"))];
  });
  return section("glance", "At a glance", "Means over finished runs, ± one standard deviation over seeds.", ...parts);
}

const metricName = (name) => ({ gap: "average gap", covered: "covered throughout", gap_last: "gap of the last plan" })[name] ?? name.replaceAll("_", " ");
const spent = (run, name) => (name === "seconds" ? run.ledger.seconds.total : run.ledger[name]);

/* ---- what each currency buys ---- */

function currencies(runs) {
  const experiments = byExperiment(runs);
  const axis = state.x ?? (experiments.length === 1 && window.innerWidth > 640 ? "all" : "measurements");
  const names = new Set(runs.flatMap((run) => Object.keys(run.course)));
  const offered = [...names].filter((name) => ![...CURRENCIES, "step", "updated", "episodes", "evaluation_rollouts"].includes(name));
  const controls = element("div", { class: "controls" },
    element("label", {}, "show ", pick(["result", ...offered], state.y, (value) => change({ y: value }),
      (name) => (name === "result" ? "the result of each experiment" : spoken(name)))),
    element("span", { role: "group", "aria-label": "Against" }, "against", ["all", ...CURRENCIES].map((name) =>
      press(name === "all" ? "all four" : name, axis === name, () => change({ x: name })))),
    element("span", {}, press("log x", state.logX, () => change({ logX: !state.logX })),
      press("log y", state.logY, () => change({ logY: !state.logY })),
      press("single runs", state.lines, () => change({ lines: !state.lines }))));
  const shown = axis === "all" ? CURRENCIES : [axis];
  const panels = experiments.flatMap(([experiment, members]) => shown.map((x) => coursePanel(experiment, members, x)));
  return section("currencies", "What each currency buys",
    "A value holds until the next one. Thick lines are means over finished runs, drawn where all of them have a value; bands are ± one standard deviation. Thin lines are single runs.",
    controls, legend(), element("div", { class: "panels" }, panels));
}

function coursePanel(experiment, runs, x, column = state.y) {
  const y = column === "result" ? resultOf(runs) : column;
  const title = `${experiment}: ${y ? spoken(y) : "nothing recorded"} against ${x}`;
  const silent = y ? runs.filter((run) => !has(run, y)) : runs;
  const series = y ? byGroup(runs).flatMap(({ group, runs: own }) => groupSeries(group, own, x, y)) : [];
  const zeros = state.logY && series.some((one) => one.points.some(([, value]) => value <= 0));
  const note = [silent.length ? `${counted(silent.length, "run")} did not record it` : null,
    zeros ? "values that are not above 0 are not drawn" : null].filter(Boolean).join("; ");
  return chart({ title, note, words: `${title}. ${inWords(series)}`, series,
    x: { label: x, log: state.logX }, y: { label: y, log: state.logY }, table: () => seriesTable(series, x) });
}

/** The lines of one group: its mean if there are several finished runs, and the runs, thin if there is a mean. */
function groupSeries(group, runs, x, y) {
  const mean = meanOf(runs, x, y);
  const single = runs.map((run) => ({ type: "line", name: runName(run), look: group.look, faint: Boolean(mean), points: points(run, x, y) }));
  if (!mean) return single;
  const line = { type: "line", name: group.label, look: group.look, count: mean[0]?.count, points: mean.map(({ at, mean: value }) => [at, value]),
    band: mean.map(({ at, mean: value, spread }) => [at, value - spread, value + spread]) };
  return state.lines ? [...single, line] : [line];
}

function inWords(series) {
  const main = series.filter((one) => !one.faint && one.points.length);
  if (!main.length) return "Nothing was recorded.";
  return main.slice(0, 12).map((one) => {
    const [first, last] = [one.points[0], one.points.at(-1)];
    const over = one.count ? ` (mean of ${one.count} runs)` : "";
    return `${one.name}${over}: from ${number(first[1])} at ${number(first[0])} to ${number(last[1])} at ${number(last[0])}.`;
  }).join(" ");
}

function seriesTable(series, x) {
  const rows = series.flatMap((one) => one.points.map(([at, value], n) => [one.name, at, value, one.band ? (one.band[n][2] - one.band[n][1]) / 2 : null]));
  return { columns: ["line", x, "value", "± standard deviation"], rows };
}

function pick(values, current, choose, say = (value) => value) {
  const options = values.map((value) => element("option", { value, selected: String(value) === String(current) }, say(value)));
  return element("select", { onchange: (event) => choose(event.target.value) }, options);
}

function press(text, on, act) {
  return element("button", { type: "button", "aria-pressed": String(on), onclick: act }, text);
}

function legend() {
  const present = [...new Set(chosenRuns().map((run) => DATA.groups[run.group].label))];
  return element("div", { class: "legend", role: "group", "aria-label": "Lines" }, present.map((label) => {
    const { colour, dash } = look(labels.indexOf(label));
    const sample = drawn("svg", { width: 22, height: 8, "aria-hidden": "true" },
      drawn("line", { x1: 0, x2: 22, y1: 4, y2: 4, style: `stroke: ${colour}`, "stroke-width": 3, "stroke-dasharray": dash }));
    return element("button", { type: "button", "aria-pressed": String(!state.hidden.has(label)), onclick: () => {
      state.hidden.has(label) ? state.hidden.delete(label) : state.hidden.add(label);
      change({});
    } }, sample, label);
  }));
}

/* ---- when it measured ---- */

function runPicker(runs, current) {
  return element("div", { class: "controls" }, element("label", {}, "run ",
    pick(runs.map((run) => run.index), current.index, (value) => change({ run: Number(value) }), (index) => longName(DATA.runs[index]))));
}

function measured(runs) {
  const timed = runs.filter((run) => run.times);
  if (!timed.length) return null;
  const run = timed.find((one) => one.index === state.run) ?? timed[0];
  const { horizon, ticks: parts, total, m, episodes, times, histogram } = run.times;
  const colour = DATA.groups[run.group].look;
  const dotsShown = times.flatMap((row, n) => row.map((tick) => [(tick / parts) * horizon, episodes[n]]));
  const width = horizon / histogram.length;
  const bars = histogram.map((count, n) => [(n + 0.5) * width, count]);
  const x = { label: "time along the episode", domain: [0, horizon] };
  const some = episodes.length < total ? `${number(episodes.length)} of ${counted(total, "episode")}, evenly chosen` : counted(total, "episode");
  const [least, most] = [Math.min(...histogram), Math.max(...histogram)];
  return section("measured", "When it measured", "The times along an episode at which the state was looked at.", runPicker(timed, run),
    element("div", { class: "panels" },
      chart({ title: `Episode by episode: ${longName(run)}`, note: `${some}, ${counted(m, "measurement")} in each`, x, y: { label: "episode" },
        words: `Times of measurements of ${longName(run)}: ${some}, ${m} in each, between 0 and ${number(horizon)}.`,
        series: [{ type: "dots", look: colour, points: dotsShown, size: dotsShown.length > 1500 ? 1.8 : 3.2 }],
        table: () => ({ columns: ["episode", "time"], rows: dotsShown.map(([time, episode]) => [episode, time]) }) }),
      chart({ title: "All episodes together", note: "measurements in each fiftieth of an episode", x, y: { label: "measurements", domain: [0, most * 1.05] },
        words: `Histogram of all times: between ${number(least)} and ${number(most)} measurements in each fiftieth of an episode.`,
        series: [{ type: "bars", look: colour, points: bars }],
        table: () => ({ columns: ["time", "measurements"], rows: bars }) })));
}

/* ---- when it updated, and why ---- */

const MOST_STRIPS = 40;
const KINDS = ["drift", "reward", "both"];

function updated(runs) {
  const axis = state.strip;
  const rules = byGroup(runs).map(({ group }) => [named(group, `${group.experiment}, ${group.label}`), group.rule]);
  const controls = element("div", { class: "controls" }, element("span", { role: "group", "aria-label": "Against" }, "against",
    CURRENCIES.filter((name) => name !== "updates").map((name) => press(name, axis === name, () => change({ strip: name })))));
  const strips = byExperiment(runs).map(([experiment, members]) => updateStrips(experiment, members, axis));
  return section("updated", "When it updated, and why", null, scrolled(table(["algorithm", "updates"], rules, "words")), controls,
    element("div", { class: "panels" }, strips), ...misfit(runs));
}

/** A row for each run, a tick for each update. */
function updateStrips(experiment, runs, axis) {
  const shown = runs.slice(0, MOST_STRIPS);
  const series = shown.map((run, row) => ({ type: "ticks", look: DATA.groups[run.group].look,
    points: (run.course.updated ?? []).map((which, n) => [run.course[axis][n], row, which]).filter(([, , which]) => which) }));
  const names = shown.map(runName);
  const most = Math.max(...runs.map((run) => spent(run, axis)));
  const note = runs.length > MOST_STRIPS ? `the first ${MOST_STRIPS} of ${runs.length} runs; filter to see others` : "";
  return chart({ title: `${experiment}: updates against ${axis}`, note, series, y: { names },
    x: { label: axis, log: state.logX, domain: state.logX ? undefined : [0, most] },
    words: `Updates of each run of ${experiment}. ${shown.map((run) => `${runName(run)}: ${counted(run.ledger.updates, "update")}`).join(". ")}.`,
    table: () => ({ columns: ["run", axis, "updated"],
      rows: series.flatMap((one) => one.points.map(([at, row, which]) => [names[row], at, KINDS[which - 1]])) }) });
}

/** Excess loss against the threshold of Algorithm 2, where a run recorded it. */
function misfit(runs) {
  const watched = runs.filter((run) => has(run, "excess_drift"));
  if (!watched.length) return [];
  const run = watched.find((one) => one.index === state.run) ?? watched[0];
  const threshold = DATA.groups[run.group].threshold;
  const lines = [["excess_drift", 0, "drift", 1], ["excess_reward", 1, "reward", 2]].flatMap(([column, index, name, bit]) => {
    const course = points(run, "measurements", column);
    const due = run.course.updated.map((which, n) => [run.course.measurements[n], run.course[column][n], which]).filter(([, value, which]) => which & bit && value !== null);
    return [{ type: "line", name, look: look(index), faint: false, thin: true, points: course }, { type: "dots", look: look(index), points: due, size: 7, opacity: 1 }];
  });
  const title = `Why: excess loss against the threshold, ${longName(run)}`;
  const rules = threshold === null ? [] : [{ y: threshold, label: `update at ${number(threshold)} β` }];
  return [element("h3", {}, "Excess loss"), runPicker(watched, run), element("div", { class: "legend" }, ["drift", "reward"].map((name, index) =>
    element("span", {}, element("span", { class: "swatch", style: `background: ${look(index).colour}` }), name))),
  chart({ title, note: "in units of the confidence radius β; a dot is an update of that model; where rows were thinned out, the largest of them",
    words: `${title}: ${counted(run.ledger.updates, "update")}. ${inWords(lines.filter((line) => line.type === "line"))}`,
    x: { label: "measurements", log: state.logX }, y: { label: "excess", log: state.logY }, series: lines, rules,
    table: () => seriesTable(lines.filter((line) => line.type === "line"), "measurements") })];
}

/* ---- coverage ---- */

function coverage(runs) {
  const covered = runs.filter((run) => has(run, "covered_so_far"));
  if (!covered.length) return null;
  const panels = byExperiment(covered).map(([experiment, members]) => {
    const series = byGroup(members).flatMap(({ group, runs: own }) => groupSeries(group, own, "measurements", "covered_so_far"))
      .filter((one) => !one.faint).map((one) => ({ ...one, band: undefined }));
    const title = `${experiment}: share of runs that covered the truth so far`;
    return chart({ title, x: { label: "measurements", log: state.logX }, y: { label: "share", domain: [-0.03, 1.03] }, series,
      words: `${title}. ${inWords(series)}`, table: () => seriesTable(series, "measurements") });
  });
  return section("coverage", "Coverage", "Whether both confidence sets contained the truth after every episode up to here.", element("div", { class: "panels" }, panels));
}
