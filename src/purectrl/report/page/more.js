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
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))];
  const rows = runs.filter((run) => run.finished).map((run) => [named(DATA.groups[run.group], longName(run)), number(run.ledger.evaluation_rollouts),
    ...names.map((name) => number(run.metrics[name]))]);
  const fresh = runs.filter((run) => run.evaluation);
  const columns = [...new Set(fresh.flatMap((run) => Object.keys(run.evaluation.metrics)))];
  return section("evaluation", "Evaluation, kept apart",
    "Test episodes cost the budget nothing, and the learner never saw them. What a run found about its own plans:",
    rows.length ? scrolled(table(["run", "test rollouts", ...names.map(metricName)], rows, "cards")) : element("p", {}, "No run has finished."),
    fresh.length ? element("h3", {}, "Fresh episodes afterwards (purectrl evaluate)") : null,
    fresh.length ? scrolled(table(["run", "episodes", "seed of the episodes", ...columns.map(metricName)], fresh.map((run) => [named(DATA.groups[run.group], longName(run)),
      number(run.evaluation.episodes), number(run.evaluation.seed), ...columns.map((name) => number(run.evaluation.metrics[name]))]), "cards")) : null);
}

const written = (value) => (Array.isArray(value) ? value.join(", ") : value === null || value === undefined ? "–" : String(value));

function settings(runs) {
  const groups = byGroup(runs);
  const names = [...new Set(groups.flatMap(({ group }) => Object.keys(group.settings)))];
  const differing = names.filter((name) => new Set(groups.map(({ group }) => JSON.stringify(group.settings[name]))).size > 1);
  const head = ["setting", ...groups.map(({ group }) => `${group.experiment}, ${group.label}`)];
  const compared = groups.length > 1 && groups.length <= 8 && differing.length
    ? [element("h3", {}, "Settings that differ"), scrolled(table(head, differing.map((name) => [name, ...groups.map(({ group }) => written(group.settings[name]))]), "words"))] : [];
  const all = groups.map(({ group, runs: own }) => element("details", {}, element("summary", {}, named(group, `${group.experiment}, ${group.label}`)),
    scrolled(table(["setting", "value"], Object.entries(group.settings).map(([name, value]) => [name, written(value)]), "words")),
    scrolled(table(["package", "version"], Object.entries(group.versions).map(([name, value]) => [name, written(value)]), "words")),
    element("ul", {}, own.map((run) => element("li", {}, `seed ${run.seed}: `, element("code", {}, run.place),
      run.records > (run.course.updated ?? []).length ? ` (${number(run.records)} records, ${number(run.course.updated.length)} shown)` : ` (${number(run.records)} records)`)))));
  return section("settings", "Settings and versions", null, ...compared, element("h3", {}, "All settings, versions and places"), ...all);
}
