/* One chart, drawn by uPlot on a canvas.

   A canvas is opaque to screen readers and the keyboard. Each chart therefore has a text description (aria-label), a table
   of its data, and a box with the values at a cursor that follows the mouse, a finger or the arrow keys. */

const MAX_LABELS = 12;
const FONT = "11.5px system-ui, sans-serif";
const TINY = 1e-30; // smaller numbers are beyond the logarithmic axes of uPlot
const uplots = new Set(); // the charts on the page

const cssColor = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();

const LINES = [{ border: "solid", dash: [] }, { border: "dashed", dash: [7, 3] }, { border: "dotted", dash: [2, 3] }];
/** The style of the n-th series: six colors, then the same colors dashed and dotted. */
const seriesStyle = (index) => ({ color: `--c${index % 6}`, ...LINES[Math.floor(index / 6) % LINES.length] });

/**
 * A figure with a chart, its description and its data table.
 *
 * spec.title, spec.note: the caption.
 * spec.x: {label, log, range}; spec.y: {label, log, range, rows}. With rows, the y axis has named rows.
 * spec.series: [{kind, name, style, points, faint, plain, summary}] with points [{x, y, deviation, text}]. KINDS lists the kinds. A
 *   deviation is drawn as a band; a text replaces y in the data table; a series without a name only decorates another one.
 * spec.cursor: whether the values at the cursor are shown.
 */
function chart(spec) {
  const words = labeled(spec).map((series) => `${series.name}: ${series.summary ?? lineSummary(series)}`);
  const description = joined([spec.title, spec.note, ...words], ". ");
  const plot = element("div", { class: "plot", tabindex: "0", role: "img", "aria-label": description });
  const values = element("div", { class: "values", role: "status", hidden: true });
  const caption = element("figcaption", {}, spec.title, element("small", {}, spec.note));
  if (!words.length) plot.append("No data");
  else new ResizeObserver(() => resize(plot, values, spec)).observe(plot);
  return element("figure", { class: "chart" }, caption, plot, values, dataTable(spec));
}

/** The series that the description and the box of values contain. */
const labeled = ({ series }) =>
  series.filter(({ name, faint, points }) => name && !faint && points.length).slice(0, MAX_LABELS);

function lineSummary({ points }) {
  const [first, last] = [points[0], points.at(-1)];
  return `from ${number(first.y)} at ${number(first.x)} to ${number(last.y)} at ${number(last.x)}`;
}

/** The data of a chart as a table, which is created when it is opened. */
function dataTable({ x, y, series }) {
  return element("details", { class: "data", ontoggle: ({ target }) => {
    if (!target.open || target.querySelector("table")) return;
    const rows = series.filter(({ name }) => name).flatMap(({ name, points }) => points.map((point) =>
      [name, point.x, point.text ?? point.y, point.deviation].map((value) => number(value, 5))));
    target.append(table(["series", x.label, y.label, "± standard deviation"], rows));
  } }, element("summary", {}, "Data"));
}

/** Draws the chart when its width is known, and again when the width changes. */
function resize(plot, values, spec) {
  const width = Math.floor(plot.clientWidth);
  if (width === 0 || width === plot.uplot?.width) return;
  const height = spec.y.rows ? spec.y.rows.length * 16 + 64 : Math.round(Math.min(300, Math.max(200, width * 0.55)));
  if (plot.uplot) plot.uplot.setSize({ width, height });
  else uplots.add(plot.uplot = draw(plot, values, spec, { width, height }));
}

function draw(plot, values, spec, size) {
  const chart = new uPlot({
    ...size, ...layout(spec),
    padding: [10, 14, 0, 0],
    scales: { x: scale(spec.x), y: scale(spec.y) },
    axes: [axis(spec.x), axis({ ...spec.y, label: undefined })],
    legend: {
      show: Boolean(spec.cursor),
      mount: (_, legend) => values.append(legend),
      markers: { width: 0, fill: ({ series }, n) => `var(${series[n].color})` },
    },
    cursor: {
      x: Boolean(spec.cursor), y: false, points: { show: false }, hover: { bias: -1 }, drag: { x: !spec.x.range, y: false },
    },
    hooks: { setCursor: [({ cursor, over }) => {
      values.hidden = cursor.idx === null;
      values.classList.toggle("left", cursor.left > over.clientWidth / 2); // away from the cursor
    }] },
  }, undefined, plot);
  if (spec.cursor) addCursorInputs(chart, plot);
  return chart;
}

const xyColumns = (points) => [points.map((point) => point.x), points.map((point) => point.y)];

/** The data columns of uPlot and how each is drawn. A band takes two more columns: its upper and lower edge. */
function layout(spec) {
  const { x, y, series } = spec;
  const visible = (point) => point.y !== null && (!x.log || point.x > TINY) && (!y.log || point.y > TINY);
  const options = [{ label: x.label, value: (_, value) => number(value, 4) }], bands = [], tables = [];
  for (const one of series) {
    const points = one.points.filter(visible);
    const { color } = one.style;
    const banded = points.some((point) => Number.isFinite(point.deviation));
    const column = options.length;
    const deviation = ({ data }, value, row) => row !== null && `± ${number(data[column + 1][row] - value, 2)}`;
    const option = {
      label: one.name, class: labeled(spec).includes(one) ? null : "unlabeled", color, stroke: () => cssColor(color),
      value: (chart, value, _, row) => joined([number(value), banded && deviation(chart, value, row)], " "),
      points: { show: false }, ...KINDS[one.kind](one),
    };
    options.push(option);
    tables.push(xyColumns(one.kind === "path" ? [...points].sort((a, b) => a.x - b.x) : points)); // uPlot sorts nothing
    if (!banded) continue;
    for (const sign of [1, -1]) {
      options.push({ ...option, class: "unlabeled", width: 0, points: { show: false } });
      tables.at(-1).push(points.map((point) => point.y + sign * point.deviation));
    }
    bands.push({ series: [column + 1, column + 2], fill: () => `${cssColor(color)}29` });
  }
  return { data: uPlot.join(tables), series: options, bands };
}

/** How uPlot draws each kind of series. */
const KINDS = {
  // a value holds until the next one, since a policy is used until the next update
  line: ({ style, faint, plain }) => ({
    width: faint ? 1 : 2.2, alpha: faint ? 0.38 : 1, dash: style.dash, spanGaps: true,
    paths: uPlot.paths.stepped({ align: 1 }), points: faint || plain ? { show: false } : filledPoints(style, 6),
  }),
  // straight lines between measured values
  curve: ({ style }) => ({ width: 1.6, dash: style.dash, spanGaps: true }),
  // points in their own order, for which x need not increase
  path: ({ style, points }) => ({ width: 1.6, dash: style.dash, paths: (chart) => ({ stroke: tracePath(chart, points) }) }),
  rule: ({ style }) => ({ width: 1, dash: style.dash, spanGaps: true }),
  points: ({ style, size }) => ({ paths: () => null, points: { ...filledPoints(style, size), show: true } }),
  bars: ({ style }) => ({ fill: () => cssColor(style.color), paths: uPlot.paths.bars({ size: [1, Infinity], gap: 1 }) }),
};

function tracePath(chart, points) {
  const path = new Path2D();
  let gap = true;
  for (const { x, y } of points) {
    if (x === null || y === null) gap = true;
    else {
      path[gap ? "moveTo" : "lineTo"](chart.valToPos(x, "x", true), chart.valToPos(y, "y", true));
      gap = false;
    }
  }
  return path;
}

const filledPoints = ({ color }, size) => ({ size, width: 0, fill: () => cssColor(color) });

function scale({ log, range, rows }) {
  // the upper limit of uPlot is a power of ten, which wastes space; the lower limit has one digit, as its ticks require
  const logLimits = (_, low, high) => [uPlot.rangeLog(Math.max(low ?? 1, TINY), high ?? 1, 10, false)[0], high ?? 10];
  const limits = rows ? [-0.5, rows.length - 0.5] : range ?? (log ? logLimits : undefined);
  return { time: false, distr: log ? 3 : 1, dir: rows ? -1 : 1, ...(limits ? { range: limits } : {}) };
}

function axis({ label, rows }) {
  const width = (_, labels) => 14 + 6.4 * Math.max(4, ...(labels ?? []).map((text) => text.length));
  return {
    label, font: FONT, labelFont: FONT, labelSize: 18, gap: 6, size: label ? 26 : width, ticks: { show: false },
    stroke: () => cssColor("--soft"), grid: { stroke: () => cssColor("--grid"), width: 1 },
    ...(rows
      ? { splits: [...rows.keys()], values: (chart) => rows.map((name) => name.slice(-chart.width / 16)) } // keeps the seed
      : { values: (_, splits) => splits.map((value) => (value === null ? "" : number(value, 6))) }),
  };
}

/** Moves the cursor with the arrow keys or a finger; uPlot itself supports the mouse only. */
function addCursorInputs(chart, plot) {
  const position = (row) => chart.valToPos(chart.data[0][row], "x"); // NaN outside the data
  const move = (left) => chart.setCursor({ left, top: 0 }, true);
  plot.addEventListener("blur", () => move(-10));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const current = chart.cursor.idx ?? -1;
    let next = current + step;
    while (Math.abs(position(next) - position(current)) < 2) next += step; // rows that look the same
    if (chart.data[0][next] !== undefined) move(position(next));
  });
  chart.over.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "mouse") move(event.clientX - chart.over.getBoundingClientRect().left);
  });
}
