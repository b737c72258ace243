/* Evaluation episodes: phase plots, controls, states and rewards over time; imagined against measured reward. */

const FIRST_COORDINATES = 4; // further ones are folded away

function evaluationEpisodes(runs) {
  const played = runs.filter((run) => run.episodes?.episodes.length);
  if (!played.length) return null;
  const run = selectedRun(played);
  const { episodes, labels, coordinates, update, seed } = run.episodes;
  const shown = episodes[0].x.length;
  const overTime = (title, read, kind) => chart({
    title: `${title}: ${fullName(run)}`, cursor: true, x: { label: "time (s)" }, y: { label: title },
    series: episodes.map((episode, n) => episodeSeries(episode, n, kind, episode.t, read(episode))),
  });
  const states = range(shown).map((i) => overTime(labels[i], (episode) => episode.x[i], "curve"));
  const charts = [
    ...(shown > 1 ? [phasePlot(run, shown)] : []),
    ...range(episodes[0].u.length).map((i) => overTime(`control u[${i}]`, (episode) => episode.u[i], "line")),
    ...(episodes[0].r ? [overTime("reward", (episode) => episode.r, "curve")] : []),
    ...states.slice(0, FIRST_COORDINATES),
  ];
  const rest = states.slice(FIRST_COORDINATES);
  const source = Number.isInteger(update) ? `the evaluation after update ${update}`
    : joined(["purectrl evaluate", Number.isInteger(seed) && `seed ${seed}`], ", ");
  const hidden = coordinates > shown && ` The first ${shown} of ${coordinates} coordinates are shown.`;
  const about = `${counted(episodes.length, "episode")} without exploration noise, from ${source}.${hidden || ""}`;
  return section("episodes", "Evaluation episodes", about, runSelect(played, run), phaseSelect(labels), panels(charts),
    rest.length ? element("details", {}, element("summary", {}, counted(rest.length, "more coordinate")), panels(rest)) : null);
}

const range = (count) => [...Array(count).keys()];

function episodeSeries(episode, n, kind, xs, ys) {
  const points = xs.map((x, row) => ({ x, y: ys[row] }));
  return { kind, name: `episode ${n + 1}`, style: seriesStyle(n), points, plain: true };
}

/** The two coordinates of the phase plot, as far as the run has them. */
const phaseAxes = (shown) => state.phase.map((i, n) => (i < shown ? i : n));

function phaseSelect(labels) {
  if (labels.length < 3) return null;
  const [first, second] = phaseAxes(labels.length);
  const menu = (label, current, set) =>
    select(label, range(labels.length), current, (value) => change({ phase: set(Number(value)) }), (i) => labels[i]);
  return controls(menu("phase plot of", first, (i) => [i, second]), menu("against", second, (i) => [first, i]));
}

function phasePlot(run, shown) {
  const [first, second] = phaseAxes(shown);
  const { episodes, labels } = run.episodes;
  const limits = (i) => {
    const values = episodes.flatMap((episode) => episode.x[i]).filter((value) => value !== null);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = 0.04 * (high - low) || 0.5;
    return [low - margin, high + margin];
  };
  const series = episodes.flatMap((episode, n) => [
    episodeSeries(episode, n, "path", episode.x[first], episode.x[second]),
    { kind: "points", size: 8, style: seriesStyle(n), points: [{ x: episode.x[first][0], y: episode.x[second][0] }] },
  ]);
  return chart({
    title: `${labels[second]} against ${labels[first]}: ${fullName(run)}`, note: "a dot is where an episode starts", series,
    x: { label: labels[first], range: limits(first) }, y: { label: labels[second], range: limits(second) },
  });
}

/** What the model imagined of a policy, beside what was measured of it. */
function imagination(runs) {
  const pairs = [["promised", "measured"], ["imagined_reward", "eval_reward"], ["imagined_reward", "reward"]];
  const columns = (run) => pairs.find((pair) => pair.every((name) => hasColumn(run, name)));
  const recorded = runs.filter(columns);
  if (!recorded.length) return null;
  const run = selectedRun(recorded);
  const [imagined, measured] = columns(run);
  // learners see rewards relative to that of an aborted episode, evaluations report them in the user's unit
  const offset = (column) => (column.startsWith("eval_") ? 0 : run.group.abort_reward);
  const line = (name, column, index) => ({
    kind: "line", name, style: seriesStyle(index),
    points: curvePoints(run, "measurements", column).map((point) => ({ ...point, y: point.y + offset(column) })),
  });
  const series = [line("imagined", imagined, 0), line("measured", measured, 1)];
  const about = "The mean reward of the policy in the learned model and on the system. If the imagined reward is higher, the "
    + "model is wrong where the policy goes: more data help. If both are low, the policy is not optimal in its own model: "
    + "more planning helps.";
  return section("imagination", "Imagined and measured reward", about, runSelect(recorded, run),
    element("div", { class: "legend" }, series.map(({ name, style }) => element("span", {}, lineSample(style), name))),
    panels([chart({
      title: `Imagined and measured reward: ${fullName(run)}`, note: `${columnLabel(imagined)}, ${columnLabel(measured)}`,
      series, cursor: true, x: { label: "measurements", log: state.logX }, y: { label: "mean reward" },
    })]));
}

/** What each update did, in a table. */
function decisions(runs) {
  const recorded = runs.filter((run) => run.decisions.length);
  if (!recorded.length) return [];
  const run = selectedRun(recorded);
  const known = (name) => run.decisions.some((row) => row[name] !== undefined);
  const columns = {
    update: (row) => (row.updated ? number(row.updates) : "–"),
    measurements: (row) => number(row.measurements),
    rollouts: (row) => number(row.rollouts),
    models: (row) => UPDATED[row.updated],
    ...(known("promised") ? { promised: (row) => number(row.promised), measured: (row) => number(row.measured) } : {}),
    ...(known("imagined_reward") ? { "imagined reward": (row) => number(row.imagined_reward) } : {}),
    ...(known("eval_reward") ? { "evaluation reward": (row) => number(row.eval_reward) } : {}),
    ...(known("eval_return") ? { "evaluation return": withError } : {}),
    decision: (row) => row.decision ?? (row.rolled_back ? `rolled back: ${row.rolled_back}` : "a new policy"),
  };
  const rows = run.decisions.map((row) => Object.values(columns).map((read) => read(row)));
  const newest = run.ledger.updates > rows.length ? `, the newest ${rows.length}` : "";
  return [
    element("h3", {}, `What each update decided${newest}`),
    runSelect(recorded, run),
    element("details", { class: "many", open: rows.length <= 12 }, element("summary", {}, counted(rows.length, "update")),
      table(Object.keys(columns), rows, "decisions")),
  ];
}

const withError = (row) => joined([number(row.eval_return), row.eval_return_error && `± ${number(row.eval_return_error, 2)}`], " ");
