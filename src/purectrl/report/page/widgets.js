/* The parts of a section: elements, numbers, tables, buttons, the legend. */

/** Creates an HTML element. Strings become text nodes, so content written by a run is never parsed as markup. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Formats a number: 65,536 and 0.978 and 2.0e-5. A missing value is a dash. */
function number(value, digits = 3) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number" || Number.isNaN(value)) return String(value || "–");
  const size = Math.abs(value);
  if (size > 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(1);
  const decimals = Number.isInteger(value) ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toLocaleString("en", { maximumFractionDigits: decimals });
}

/** "3 runs", "1 run". */
const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** Joins the parts of a sentence that are present. */
const joined = (parts, separator = "; ") => parts.filter(Boolean).join(separator);

function table(columns, rows, kind = "") {
  const head = element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)));
  const cells = (row) => row.map((cell, n) => element("td", { "data-label": columns[n] }, cell));
  const body = rows.map((row) => element("tr", {}, cells(row)));
  const whole = element("table", { class: kind }, element("thead", {}, head), element("tbody", {}, body));
  return element("div", { class: "scroll" }, whole);
}

/** A table with one row per run; columns maps names to functions of a run. A long table starts closed. */
function runTable(runs, columns) {
  const rows = runs.map((run) => Object.values(columns).map((read) => read(run)));
  return element("details", { class: "many", open: rows.length <= 12 },
    element("summary", {}, counted(rows.length, "run")), table(Object.keys(columns), rows, "cards"));
}

/** Columns of numbers for runTable: each name with the value that read(run, name) returns. */
const numberColumns = (names, read, labelOf = (name) => name) =>
  Object.fromEntries(names.map((name) => [labelOf(name), (run) => number(read(run, name))]));

function section(id, title, about, ...nodes) {
  return element("section", { id, "aria-labelledby": `${id}-title` },
    element("h2", { id: `${id}-title` }, title), about ? element("p", { class: "soft" }, about) : null, ...nodes);
}

const panels = (charts) => element("div", { class: "panels" }, charts);
const controls = (...nodes) => element("div", { class: "controls" }, ...nodes);
const groupName = (group, text = group.label) =>
  element("span", {}, element("span", { class: "dot", style: `background: var(${group.style.color})` }), text);

/** A short line with the color and the dashes of a series. */
const lineSample = ({ color, border }) =>
  element("span", { class: "sample", style: `border-top: 3px ${border} var(${color})` });

function select(label, values, current, choose, textOf) {
  const option = (value) => element("option", { value, selected: value === current }, textOf(value));
  const menu = element("select", { onchange: (event) => choose(event.target.value) }, values.map(option));
  return element("label", {}, `${label} `, menu);
}

const toggle = (content, pressed, onclick) =>
  element("button", { type: "button", "aria-pressed": String(pressed), onclick }, content);

/** A row of buttons, one of which is pressed. */
const choice = (label, names, current, choose) => element("span", { role: "group", "aria-label": label }, label,
  names.map((name) => toggle(name, name === current, () => choose(name))));

/** The run that the reader selected if it is among these, otherwise the first of them. */
const selectedRun = (runs) => runs.find((run) => run.index === state.run) ?? runs[0];

const runSelect = (runs, current) => controls(select("run", runs.map((run) => run.index), current.index,
  (value) => change({ run: Number(value) }), (index) => fullName(DATA.runs[index])));

function legend() {
  const flip = (label) => change({ hidden: state.hidden.symmetricDifference(new Set([label])) });
  const groups = new Map(filteredRuns().map(({ group }) => [group.label, group]));
  return element("div", { class: "legend", role: "group", "aria-label": "Series" }, [...groups].map(([label, { style }]) =>
    toggle([lineSample(style), label], !state.hidden.has(label), () => flip(label))));
}
