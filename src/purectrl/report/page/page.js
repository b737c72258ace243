/* Puts the sections on the page and draws them again when the reader chooses something else. */

const SECTIONS = [glance, currencies, measured, updated, coverage, pictures, ledger, evaluation, settings];

function change(news) {
  Object.assign(state, news);
  render();
}

function render() {
  const runs = shownRuns();
  const host = document.getElementById("sections");
  const nothing = () => [legend(), element("p", { class: "box" }, "No run passes the filters.")];
  const nodes = runs.length ? SECTIONS.map((make) => make(runs)) : nothing();
  host.style.minHeight = `${host.offsetHeight}px`; // or the page jumps while it is empty
  host.replaceChildren(...nodes.filter(Boolean));
  host.style.minHeight = "";
  document.getElementById("count").textContent = `${runs.length} of ${counted(DATA.runs.length, "run")} shown`;
}

function filters() {
  const host = document.getElementById("filters");
  host.append(...Object.keys(FILTERS).map(filter), element("span", { class: "count", id: "count", role: "status" }));
  document.addEventListener("click", (event) => { // a click elsewhere closes a menu
    for (const menu of host.querySelectorAll("details[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
}

/** A menu with a box for each value. */
function filter(name) {
  const values = choices(name);
  const left = state.left[name];
  const title = element("summary", {}, summed(name, values, left));
  const boxes = values.map((value) => element("input", { type: "checkbox", checked: true, "data-value": value }));
  const apply = () => {
    left.clear();
    boxes.forEach((box, n) => { if (!box.checked) left.add(values[n]); });
    title.textContent = summed(name, values, left);
    render();
  };
  const all = (text, on) => element("button", { type: "button", onclick: () => {
    for (const box of boxes) box.checked = on;
    apply();
  } }, text);
  const lines = values.map((value, n) => element("label", {}, boxes[n], ` ${value}`));
  return element("details", { class: "filter", "data-filter": name, onchange: apply }, title,
    element("div", {}, element("div", { class: "all" }, all("all", true), all("none", false)), lines));
}

/** "seed: all 10", "seed: 0, 1", "seed: 7 of 10". */
function summed(name, values, left) {
  const kept = values.filter((value) => !left.has(value));
  if (kept.length === values.length) return `${name}: ${values.length === 1 ? values[0] : `all ${values.length}`}`;
  return `${name}: ${kept.length > 3 ? `${kept.length} of ${values.length}` : kept.join(", ") || "none"}`;
}

function front() {
  const title = `${listed(choices("experiment"))}: ${listed(choices("algorithm"))}`;
  const seeds = choices("seed");
  const unfinished = DATA.runs.filter((run) => !run.finished).length;
  const facts = [
    counted(DATA.runs.length, "run"),
    seeds.length > 1 ? `${seeds.length} seeds` : `seed ${seeds[0]}`,
    unfinished ? `${unfinished} not finished` : null,
  ];
  document.title = `${title} · purectrl report`;
  document.getElementById("title").textContent = title;
  document.getElementById("subtitle").textContent = facts.filter(Boolean).join(" · ");
  const boxes = [box(`Not on this page (${DATA.problems.length})`, DATA.problems), box("To know", DATA.notes)];
  document.getElementById("problems").append(...boxes.filter(Boolean));
  document.getElementById("footer").textContent =
    `Made by purectrl ${DATA.purectrl} from run directories. This file needs no network.`;
}

function box(heading, lines) {
  if (!lines.length) return null;
  const list = element("ul", {}, lines.map((line) => element("li", {}, line)));
  return element("div", { class: "box", role: "note" }, element("h2", {}, heading), list);
}

front();
filters();
render();
