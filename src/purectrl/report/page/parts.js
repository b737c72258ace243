/* What sections are made of: tables, buttons, the legend. */

function table(columns, rows, kind = "") {
  const head = element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)));
  const cells = (row) => row.map((cell, n) => element("td", { "data-label": columns[n] }, cell));
  return element("table", { class: kind },
    element("thead", {}, head),
    element("tbody", {}, rows.map((row) => element("tr", {}, cells(row)))));
}

const scrolled = (node) => element("div", { class: "scroll" }, node);

const FEW = 12;

/** A table with a row for each run: behind a disclosure if it is long. */
function perRun(columns, rows) {
  const whole = scrolled(table(columns, rows, "cards"));
  if (rows.length <= FEW) return whole;
  return element("details", { class: "many" }, element("summary", {}, `${rows.length} runs`), whole);
}

function section(id, title, about, ...nodes) {
  return element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title),
    about ? element("p", { class: "soft" }, about) : null,
    ...nodes);
}

const panels = (charts) => element("div", { class: "panels" }, charts);

/** A name with the colour of its group. */
function named(group, text = group.label) {
  return element("span", {}, element("span", { class: "dot", style: `background: ${group.look.colour}` }), text);
}

function pick(values, current, choose, say = (value) => value) {
  const option = (value) => element("option", { value, selected: String(value) === String(current) }, say(value));
  return element("select", { onchange: (event) => choose(event.target.value) }, values.map(option));
}

function press(text, on, act) {
  return element("button", { type: "button", "aria-pressed": String(on), onclick: act }, text);
}

/** A row of buttons of which one is down. */
function choice(label, names, current, choose, say = (name) => name) {
  return element("span", { role: "group", "aria-label": label }, label,
    names.map((name) => press(say(name), name === current, () => choose(name))));
}

const controls = (...nodes) => element("div", { class: "controls" }, ...nodes);

function runPicker(runs, current) {
  const indices = runs.map((run) => run.index);
  const choose = (value) => change({ run: Number(value) });
  return controls(element("label", {}, "run ",
    pick(indices, current.index, choose, (index) => longName(DATA.runs[index]))));
}

/** The run that the reader has picked, if it is among these; else the first of them. */
const picked = (runs) => runs.find((run) => run.index === state.run) ?? runs[0];

function legend() {
  const present = [...new Set(chosenRuns().map((run) => DATA.groups[run.group].label))];
  return element("div", { class: "legend", role: "group", "aria-label": "Lines" }, present.map(legendEntry));
}

function legendEntry(label) {
  const { colour, dash } = look(labels.indexOf(label));
  const line = { x1: 0, x2: 22, y1: 4, y2: 4, style: `stroke: ${colour}`, "stroke-width": 3, "stroke-dasharray": dash };
  const sample = drawn("svg", { width: 22, height: 8, "aria-hidden": "true" }, drawn("line", line));
  const toggle = () => {
    if (!state.hidden.delete(label)) state.hidden.add(label);
    change({});
  };
  const on = !state.hidden.has(label);
  return element("button", { type: "button", "aria-pressed": String(on), onclick: toggle }, sample, label);
}
