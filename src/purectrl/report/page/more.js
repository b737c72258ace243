/* The rest of the sections: pictures, tables, settings. */

function pictures(runs) {
  const shown = runs.flatMap((run) => run.media.map((medium) => ({ run, ...medium })));
  if (!shown.length) return null;
  return section("media", "What it looks like", null, element("div", { class: "media" }, shown.map(({ run, name, type, uri, place }) => {
    const words = `${name}: ${longName(run)}`;
    const film = type.startsWith("video/");
    const view = !uri ? element("p", { class: "soft" }, `left out, the page would be too large: ${place}`)
      : film ? element("video", { src: uri, controls: true, loop: true, muted: true, playsinline: true, preload: "metadata", "aria-label": words })
        : element("img", { src: uri, alt: words, loading: "lazy" });
    return element("figure", {}, view, element("figcaption", {}, words));
  })));
}

function ledger(runs) {
  const phases = ["total", "rollout", "fit", "plan", "compile"];
  const rows = runs.map((run) => [named(DATA.groups[run.group], longName(run)), run.finished ? "finished" : "not finished",
    ...CURRENCIES.slice(0, 3).map((name) => number(run.ledger[name])), ...phases.map((name) => number(run.ledger.seconds[name]))]);
  return section("ledger", "Ledger", "What each run spent. Compiling is part of the phase that caused it and is shown once more.",
    scrolled(table(["run", "status", ...CURRENCIES.slice(0, 3), ...phases.map((name) => (name === "total" ? "seconds" : `s ${name}`))], rows, "cards")));
}

function evaluation(runs) {
  const own = byExperiment(runs.filter((run) => run.finished)).flatMap(([experiment, members]) => [element("h3", {}, experiment),
    metricTable(members, (run) => run.metrics, { "test rollouts": (run) => run.ledger.evaluation_rollouts })]);
  const fresh = byExperiment(runs.filter((run) => run.evaluation)).flatMap(([experiment, members]) => [
    element("h3", {}, `${experiment}: fresh episodes afterwards (purectrl evaluate)`),
    metricTable(members, (run) => run.evaluation.metrics, { episodes: (run) => run.evaluation.episodes, "their seed": (run) => run.evaluation.seed })]);
  return section("evaluation", "Evaluation, kept apart",
    "Test episodes cost the budget nothing, and the learner never saw them. What each run found about its own plans:",
    ...(own.length ? own : [element("p", {}, "No run has finished.")]), ...fresh);
}

/** A row for each run: some counts, then all of its metrics. */
function metricTable(runs, metrics, counts) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(metrics(run))))];
  const rows = runs.map((run) => [named(DATA.groups[run.group], runName(run)), ...Object.values(counts).map((read) => number(read(run))),
    ...names.map((name) => number(metrics(run)[name]))]);
  return scrolled(table(["run", ...Object.keys(counts), ...names.map(metricName)], rows, "cards"));
}

const written = (value) => (Array.isArray(value) ? value.join(", ") : value === null || value === undefined ? "–" : String(value));

function settings(runs) {
  const compared = byExperiment(runs).flatMap(([experiment, members]) => differences(experiment, byGroup(members)));
  const all = byGroup(runs).map(({ group, runs: own }) => element("details", {}, element("summary", {}, named(group, `${group.experiment}, ${group.label}`)),
    scrolled(table(["setting", "value"], Object.entries(group.settings).map(([name, value]) => [name, written(value)]), "words")),
    scrolled(table(["package", "version"], Object.entries(group.versions).map(([name, value]) => [name, written(value)]), "words")),
    element("ul", {}, own.map((run) => element("li", {}, `seed ${run.seed}: `, element("code", {}, run.place), ` (${recordsOf(run)})`)))));
  return section("settings", "Settings and versions", null, ...compared, element("h3", {}, "All settings, versions and places"), ...all);
}

function recordsOf(run) {
  const shown = run.course.updated?.length ?? 0;
  return shown < run.records ? `${counted(run.records, "record")}, thinned to ${number(shown)}` : counted(run.records, "record");
}

const MOST_COMPARED = 8;

/** The settings in which the groups of an experiment differ, side by side. */
function differences(experiment, groups) {
  const names = [...new Set(groups.flatMap(({ group }) => Object.keys(group.settings)))];
  const differing = names.filter((name) => new Set(groups.map(({ group }) => JSON.stringify(group.settings[name]))).size > 1);
  if (!differing.length || groups.length > MOST_COMPARED) return [];
  const rows = differing.map((name) => [name, ...groups.map(({ group }) => written(group.settings[name]))]);
  return [element("h3", {}, `${experiment}: settings that differ`), scrolled(table(["setting", ...groups.map(({ group }) => group.label)], rows, "words"))];
}
