/* What happened during the runs: measurement times, updates and their reasons. */

function measurementTimes(runs) {
  const timed = runs.filter((run) => run.times);
  if (!timed.length) return null;
  const run = selectedRun(timed);
  const { horizon, ticks, total, m, measured, episodes, times, histogram } = run.times;
  const ended = measured < total * m; // some episodes ended early
  const x = { label: "time within the episode", range: [0, horizon] };
  const points = times.flatMap((row, n) => row.map((tick) => ({ x: (tick / ticks) * horizon, y: episodes[n] })));
  points.sort((a, b) => a.x - b.x); // as uPlot requires
  const bars = histogram.map((count, n) => ({ x: ((n + 0.5) * horizon) / histogram.length, y: count }));
  const [fewest, most] = [Math.min(...histogram), Math.max(...histogram)];
  const shown = episodes.length < total ? `${number(episodes.length)} evenly spaced of ` : "";
  const style = { style: run.group.style, size: points.length > 1500 ? 1.8 : 3.2 };
  const charts = [
    chart({
      title: `By episode: ${fullName(run)}`,
      note: `${shown}${counted(total, "episode")}, ${ended ? "up to " : ""}${counted(m, "measurement")} per episode`,
      x, y: { label: "episode" },
      series: [{ kind: "points", name: runName(run), points, summary: counted(points.length, "measurement"), ...style }],
    }),
    chart({
      title: `All episodes: ${fullName(run)}`,
      note: `number of measurements in each of ${histogram.length} intervals of the episode`,
      x, y: { label: "measurements", range: [0, most * 1.05] }, cursor: true,
      series: [{ kind: "bars", name: "measurements", points: bars, summary: `${fewest} to ${most} per interval`, ...style }],
    }),
  ];
  const about = "The times within an episode at which the state was measured.";
  return section("times", "Measurement times", about, runSelect(timed, run), panels(charts));
}

function policyUpdates(runs) {
  const rules = byGroup(runs).map(([group]) => [groupName(group, `${group.problem}, ${group.label}`), group.update_rule]);
  const axes = COSTS.filter((name) => name !== "updates");
  return section("updates", "Policy updates", null,
    table(["algorithm", "updates"], rules, "words"),
    controls(choice("against", axes, state.updatesAxis, (updatesAxis) => change({ updatesAxis }))),
    panels(byProblem(runs).map(([problem, members]) => updatesChart(problem, members, state.updatesAxis))),
    ...decisions(runs), ...excessLoss(runs));
}

const UPDATED = ["neither", "drift", "reward", "both"]; // bit 1 is the drift, bit 2 the reward

/** The rows of a run's curves at which a model was updated. */
const updatedRows = (run, models = 3) => (run.curves.updated ?? []).flatMap((bits, row) => (bits & models ? [row] : []));

/** One row per run, one dot per update. */
function updatesChart(problem, runs, axis) {
  const series = runs.map((run, y) => ({
    kind: "points", size: 6, name: runName(run), style: run.group.style, summary: counted(run.ledger.updates, "update"),
    points: updatedRows(run).map((row) => ({ x: run.curves[axis][row], y, text: UPDATED[run.curves.updated[row]] })),
  }));
  const merged = runs.filter((run, n) => series[n].points.length < run.ledger.updates).length;
  return chart({
    title: `${problem}: updates against ${axis}`,
    note: merged ? `${counted(merged, "run")} downsampled: one dot may represent several updates` : "",
    x: { label: axis, log: state.logX, range: state.logX ? null : [0, Math.max(...runs.map((run) => costOf(run, axis)))] },
    y: { label: "updated", rows: runs.map(runName) }, series,
  });
}

/** Excess loss against the threshold of Algorithm 2, for runs that recorded it. */
function excessLoss(runs) {
  const recorded = runs.filter((run) => hasColumn(run, "excess_drift"));
  if (!recorded.length) return [];
  const run = selectedRun(recorded);
  const { threshold } = run.group;
  const costs = run.curves.measurements;
  const series = ["drift", "reward"].flatMap((name, index) => {
    const [column, style] = [`excess_${name}`, seriesStyle(index)];
    const updates = updatedRows(run, index + 1).map((row) => ({ x: costs[row], y: run.curves[column]?.[row] ?? null }));
    return [
      { kind: "line", name, style, points: curvePoints(run, "measurements", column) },
      { kind: "points", style, points: updates, size: 8 },
    ];
  });
  if (threshold !== null) {
    const points = [costs[0], costs.at(-1)].map((x) => ({ x, y: threshold }));
    const style = { color: "--ink", border: "dashed", dash: [6, 4] };
    series.push({ kind: "rule", name: `update at ${number(threshold)} β`, style, points });
  }
  const named = series.filter(({ name }) => name);
  return [
    element("h3", {}, "Excess loss"),
    runSelect(recorded, run),
    element("div", { class: "legend" }, named.map(({ name, style }) => element("span", {}, lineSample(style), name))),
    chart({
      title: `Excess loss and the update threshold: ${fullName(run)}`, series, cursor: true,
      note: "in units of the confidence radius β; a large dot is an update of that model",
      x: { label: "measurements", log: state.logX }, y: { label: "excess loss / β", log: state.logY },
    }),
  ];
}
