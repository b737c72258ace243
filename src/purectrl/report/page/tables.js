/* Media, ledger, evaluation, settings. */

function media(runs) {
  const figures = runs.flatMap((run) => run.media.map((file) => {
    const name = `${file.name}: ${fullName(run)}`;
    return element("figure", {}, mediaView(file, name), element("figcaption", {}, name));
  }));
  return figures.length ? section("media", "Videos and images", null, element("div", { class: "media" }, figures)) : null;
}

function mediaView({ type, uri, path, missing, poster }, name) {
  if (!uri) return element("p", { class: "soft" }, `not included: ${path} ${missing}`);
  if (!type.startsWith("video/")) return element("img", { src: uri, alt: name, loading: "lazy" });
  const options = { controls: true, loop: true, muted: true, playsinline: true, preload: poster ? "metadata" : "auto" };
  const video = element("video", { src: uri, "aria-label": name, poster: poster ?? false, ...options });
  if (!poster) showMiddle(video);
  return video;
}

/** Shows the middle of a video until it is played: its first picture can be empty. */
function showMiddle(video) {
  video.addEventListener("loadedmetadata", () => { video.currentTime = video.duration / 2 || 0; }, { once: true });
  video.addEventListener("play", () => { video.currentTime = 0; }, { once: true });
}

/** Measurements that no policy was learned from. */
function measuredAfterwards(run) {
  const rows = updatedRows(run);
  return rows.length ? run.ledger.measurements - run.curves.measurements[rows.at(-1)] : null;
}

function ledger(runs) {
  const about = "The cost of each run. Compilation time is also included in the phase that caused it.";
  return section("ledger", "Ledger", about, runTable(runs, {
    run: (run) => groupName(run.group, fullName(run)),
    status: (run) => (run.finished ? "finished" : "not finished"),
    ...numberColumns(COSTS, costOf),
    ...numberColumns(DATA.phases, (run, phase) => run.ledger.seconds[phase], (phase) => `${phase} (s)`),
    ...numberColumns(["measurements after the last update"], measuredAfterwards),
    ...numberColumns(["records"], (run) => run.records),
    ...numberColumns(["records shown"], (run) => run.curves.updated?.length ?? 0),
    directory: (run) => element("code", {}, run.directory),
  }));
}

function evaluation(runs) {
  const tables = (members, suffix, metricsOf, counts) => byProblem(members).flatMap(([problem, own]) => {
    const names = [...new Set(own.flatMap((run) => Object.keys(metricsOf(run))))];
    const metrics = numberColumns(names, (run, name) => metricsOf(run)[name], metricLabel);
    const name = (run) => joined([runName(run), !run.finished && "not finished"], ", ");
    const columns = { run: (run) => groupName(run.group, name(run)), ...counts, ...metrics };
    return [element("h3", {}, problem + suffix), runTable(own, columns)];
  });
  const known = runs.filter((run) => run.finished || Object.keys(run.metrics).length);
  const during = tables(known, "", (run) => run.metrics,
    numberColumns(["evaluation_rollouts"], (run, name) => run.ledger[name], metricLabel));
  const after = tables(runs.filter((run) => run.evaluation), ": purectrl evaluate", (run) => run.evaluation.metrics,
    numberColumns(["episodes", "seed"], (run, name) => run.evaluation[name]));
  const stated = byProblem(runs).filter(([, [{ group }]]) => group.criterion)
    .map(([problem, [{ group }]]) => `${problem}: ${group.criterion}`);
  const about = "Evaluation episodes do not count towards the measurement budget and are not used for learning."
    + (stated.length ? ` What counts as solved is stated by the problem. ${stated.join("; ")}.` : "");
  const none = during.length ? null : "No policy has been evaluated yet.";
  return section("evaluation", "Evaluation", about, none, ...during, ...after);
}

function settings(runs) {
  const tables = byProblem(runs).flatMap(([problem, members]) => {
    const groups = byGroup(members).map(([group]) => group);
    const texts = groups.map((group) => ({ ...group.settings, ...group.versions }));
    const names = [...new Set(texts.flatMap(Object.keys))];
    const textOf = (value) => (Array.isArray(value) ? value.join(", ") : String(value ?? "–"));
    const compare = (shown) => table(["setting", ...groups.map((group) => group.label)],
      shown.map((name) => [name, ...texts.map((own) => textOf(own[name]))]), "words");
    const differing = names.filter((name) => new Set(texts.map((own) => textOf(own[name]))).size > 1);
    return [
      element("h3", {}, differing.length ? `${problem}: settings that differ` : problem),
      differing.length ? compare(differing) : null,
      element("details", {}, element("summary", {}, "All settings and package versions"), compare(names)),
    ];
  });
  return section("settings", "Settings and versions", null, ...tables);
}
