/* The rest: pictures, ledger, evaluation, settings. */

function pictures(runs) {
  const shown = runs.flatMap((run) => run.media.map((medium) => ({ run, ...medium })));
  if (!shown.length) return null;
  return section("media", "What it looks like", null, element("div", { class: "media" }, shown.map(picture)));
}

function picture({ run, name, type, uri, place, missing }) {
  const words = `${name}: ${longName(run)}`;
  const playing = { controls: true, loop: true, muted: true, playsinline: true, preload: "metadata" };
  let view;
  if (!uri) view = element("p", { class: "soft" }, `left out: ${place} ${missing}`);
  else if (type.startsWith("video/")) view = element("video", { src: uri, "aria-label": words, ...playing });
  else view = element("img", { src: uri, alt: words, loading: "lazy" });
  return element("figure", {}, view, element("figcaption", {}, words));
}

const PHASES = ["rollout", "fit", "plan", "compile"];

function ledger(runs) {
  const counts = CURRENCIES.slice(0, 3);
  const rows = runs.map((run) => [
    named(DATA.groups[run.group], longName(run)),
    run.finished ? "finished" : "not finished",
    ...counts.map((name) => number(run.ledger[name])),
    ...["total", ...PHASES].map((name) => number(run.ledger.seconds[name])),
  ]);
  const columns = ["run", "status", ...counts, "seconds", ...PHASES.map((name) => `s ${name}`)];
  const about = "What each run spent. Compiling is part of the phase that caused it and is shown once more.";
  return section("ledger", "Ledger", about, perRun(columns, rows));
}

function evaluation(runs) {
  const own = byExperiment(runs.filter((run) => run.finished)).flatMap(([experiment, members]) => [
    element("h3", {}, experiment),
    metricTable(members, (run) => run.metrics, { "test rollouts": (run) => run.ledger.evaluation_rollouts }),
  ]);
  const fresh = byExperiment(runs.filter((run) => run.evaluation)).flatMap(([experiment, members]) => [
    element("h3", {}, `${experiment}: fresh episodes afterwards (purectrl evaluate)`),
    metricTable(members, (run) => run.evaluation.metrics,
      { episodes: (run) => run.evaluation.episodes, "their seed": (run) => run.evaluation.seed }),
  ]);
  const about = "Test episodes cost the budget nothing, and the learner never saw them. "
    + "What each run found about its own plans:";
  const none = [element("p", {}, "No run has finished.")];
  return section("evaluation", "Evaluation, kept apart", about, ...(own.length ? own : none), ...fresh);
}

/** A row for each run: some counts, then all of its metrics. */
function metricTable(runs, metrics, counts) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(metrics(run))))];
  const rows = runs.map((run) => [
    named(DATA.groups[run.group], runName(run)),
    ...Object.values(counts).map((read) => number(read(run))),
    ...names.map((name) => number(metrics(run)[name])),
  ]);
  return perRun(["run", ...Object.keys(counts), ...names.map(metricName)], rows);
}

function settings(runs) {
  const compared = byExperiment(runs).flatMap(([experiment, members]) => differences(experiment, byGroup(members)));
  const heading = element("h3", {}, "All settings, versions and places");
  return section("settings", "Settings and versions", null, ...compared, heading, ...byGroup(runs).map(groupDetails));
}

function written(value) {
  if (value === null || value === undefined) return "–";
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function groupDetails({ group, runs }) {
  const pairs = (head, values) =>
    scrolled(table(head, Object.entries(values).map(([name, value]) => [name, written(value)]), "words"));
  const place = (run) =>
    element("li", {}, `seed ${run.seed}: `, element("code", {}, run.place), ` (${recordsOf(run)})`);
  return element("details", {},
    element("summary", {}, named(group, `${group.experiment}, ${group.label}`)),
    pairs(["setting", "value"], group.settings),
    pairs(["package", "version"], group.versions),
    element("ul", {}, runs.map(place)));
}

function recordsOf(run) {
  const shown = run.course.updated?.length ?? 0;
  const all = counted(run.records, "record");
  return shown < run.records ? `${all}, thinned to ${number(shown)}` : all;
}

const MOST_COMPARED = 8;

/** The settings in which the groups of an experiment differ, side by side. */
function differences(experiment, groups) {
  const told = groups.map(({ group }) => group.settings);
  const names = [...new Set(told.flatMap(Object.keys))];
  const differing = names.filter((name) => new Set(told.map((own) => JSON.stringify(own[name]))).size > 1);
  if (!differing.length || groups.length > MOST_COMPARED) return [];
  const rows = differing.map((name) => [name, ...told.map((own) => written(own[name]))]);
  const columns = ["setting", ...groups.map(({ group }) => group.label)];
  return [element("h3", {}, `${experiment}: settings that differ`), scrolled(table(columns, rows, "words"))];
}
