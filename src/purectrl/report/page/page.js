/* Puts the sections on the page and draws them again when the reader chooses something else. */

const SECTIONS = [glance, currencies, measured, updated, coverage, pictures, ledger, evaluation, settings];

function change(news) {
  Object.assign(state, news);
  render();
}

function render() {
  const runs = shownRuns();
  const host = document.getElementById("sections");
  const nodes = runs.length ? SECTIONS.map((make) => make(runs)) : [legend(), element("p", { class: "box" }, "No run passes the filters.")];
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

function filter(name) {
  const values = choices(name);
  const left = state.left[name];
  const title = element("summary", {});
  const boxes = values.map((value) => element("input", { type: "checkbox", checked: true, "data-value": value, onchange: (event) => {
    event.target.checked ? left.delete(value) : left.add(value);
    say();
    render();
  } }));
  const say = () => {
    const kept = values.filter((value) => !left.has(value));
    const which = kept.length === values.length ? (values.length === 1 ? values[0] : `all ${values.length}`) : kept.length > 3 ? `${kept.length} of ${values.length}` : kept.join(", ") || "none";
    title.textContent = `${name}: ${which}`;
  };
  const all = (on) => {
    for (const [n, box] of boxes.entries()) {
      box.checked = on;
      on ? left.delete(values[n]) : left.add(values[n]);
    }
    say();
    render();
  };
  say();
  return element("details", { class: "filter", "data-filter": name }, title, element("div", {},
    element("div", { class: "all" }, element("button", { type: "button", onclick: () => all(true) }, "all"), element("button", { type: "button", onclick: () => all(false) }, "none")),
    values.map((value, n) => element("label", {}, boxes[n], ` ${value}`))));
}

function front() {
  const experiments = choices("experiment"), algorithms = choices("algorithm");
  const title = `${listed(experiments)}: ${listed(algorithms)}`;
  document.getElementById("title").textContent = title;
  document.title = `${title} · purectrl report`;
  const seeds = choices("seed");
  const unfinished = DATA.runs.filter((run) => !run.finished).length;
  document.getElementById("subtitle").textContent = [counted(DATA.runs.length, "run"), seeds.length > 1 ? `${seeds.length} seeds` : `seed ${seeds[0]}`,
    unfinished ? `${unfinished} not finished` : null].filter(Boolean).join(" · ");
  const box = (heading, lines) => (lines.length ? element("div", { class: "box", role: "note" }, element("h2", {}, heading), element("ul", {}, lines.map((line) => element("li", {}, line)))) : null);
  document.getElementById("problems").append(...[box(`Not on this page (${DATA.problems.length})`, DATA.problems), box("To know", DATA.notes)].filter(Boolean));
  document.getElementById("footer").textContent = `Made by purectrl ${DATA.purectrl} from run directories. This file needs no network. Apache-2.0.`;
}

front();
filters();
render();
