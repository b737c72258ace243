/* Renders the sections, and renders them again when the reader changes a filter or a control. */

const filters = document.getElementById("filters");
const SECTIONS = [
  overview, learningCurves, evaluationEpisodes, imagination, policyUpdates, measurementTimes, coverage, media, ledger,
  evaluation, settings,
];

function change(values) {
  Object.assign(state, values);
  render();
}

function render() {
  const runs = shownRuns();
  const host = document.getElementById("sections");
  const empty = element("p", { class: "box" }, "No run passes the filters.");
  const nodes = runs.length ? SECTIONS.map((make) => make(runs)) : [legend(), empty];
  const inputs = () => [...host.querySelectorAll("button, select")];
  const focused = inputs().indexOf(document.activeElement);
  uplots.forEach((chart) => chart.destroy());
  uplots.clear();
  host.style.minHeight = `${host.offsetHeight}px`; // keeps the scroll position while the host is empty
  host.replaceChildren(...nodes.filter(Boolean));
  host.style.minHeight = "";
  inputs()[focused]?.focus({ preventScroll: true });
  for (const menu of filters.querySelectorAll("details")) {
    const [checked, all] = ["input:checked", "input"].map((selector) => menu.querySelectorAll(selector).length);
    menu.firstChild.textContent = `${menu.dataset.filter}: ${checked} of ${all}`;
  }
  document.getElementById("count").textContent = `${runs.length} of ${counted(DATA.runs.length, "run")} shown`;
}

filters.addEventListener("change", render);
filters.addEventListener("click", ({ target }) => { // the buttons "all" and "none"
  if (!target.dataset.checked) return;
  for (const box of target.closest("details").querySelectorAll("input")) box.checked = target.dataset.checked === "true";
  render();
});
document.addEventListener("click", ({ target }) => { // a click elsewhere closes a menu
  for (const menu of filters.querySelectorAll("details")) if (!menu.contains(target)) menu.open = false;
});
// a canvas keeps the colors with which it was drawn
for (const query of ["print", "(prefers-color-scheme: dark)"]) {
  matchMedia(query).addEventListener("change", () => uplots.forEach((chart) => chart.redraw()));
}
render();
