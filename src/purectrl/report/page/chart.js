/* One chart: axes, lines with bands, dots, ticks, bars; a cursor for mouse, finger and keyboard; a table of numbers. */

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

/** The look of the n-th series: six colours, then the same ones dashed. */
function look(index) {
  return { colour: `var(--c${index % 6})`, dash: DASHES[Math.floor(index / 6) % DASHES.length] };
}

/**
 * A figure.
 *
 * spec.title, spec.note: what it shows; spec.words: the same for those who do not see it.
 * spec.x, spec.y: {label, log, domain, names}; with names the y axis has a row for each.
 * spec.series: {type: "line" | "dots" | "ticks" | "bars", name, look, points: [[x, y], ...]}; a line may be faint and
 *   have a band: [[x, low, high], ...].
 * spec.rules: [{y, label}], horizontal lines.
 * spec.table: () => {columns, rows}.
 */
function chart(spec) {
  const plot = element("div", { class: "plot", tabindex: "0", role: "img", "aria-label": spec.words });
  const figure = element("figure", { class: "chart" },
    element("figcaption", {}, spec.title, spec.note ? element("small", {}, spec.note) : null), plot);
  if (spec.table) figure.append(dataTable(spec.table));
  let width = 0;
  const watch = new ResizeObserver(() => {
    const now = Math.floor(plot.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      draw(plot, spec, width);
    }
  });
  watch.observe(plot);
  return figure;
}

/** The numbers behind a chart, made when somebody asks for them. */
function dataTable(make) {
  const details = element("details", { class: "data", ontoggle: () => {
    if (!details.open || details.querySelector("table")) return;
    const { columns, rows } = make();
    details.append(scrolled(table(columns, rows.map((row) => row.map((cell) => number(cell, 5))))));
  } }, element("summary", {}, "data"));
  return details;
}

function draw(plot, spec, width) {
  const rows = spec.y.names;
  const height = rows ? rows.length * 16 + 44 : Math.round(Math.min(300, Math.max(190, width * 0.55)));
  const left = rows ? Math.min(width * 0.36, 14 + 6.2 * Math.max(...rows.map((name) => name.length))) : 52;
  const box = { left, right: width - 12, top: 12, bottom: height - 36 };
  const x = scale(domain(spec, 0, spec.x), [box.left, box.right], spec.x.log, (box.right - box.left) / 75);
  const y = rows
    ? Object.assign((row) => box.top + (row + 0.5) * ((box.bottom - box.top) / rows.length), { ticks: [] })
    : scale(domain(spec, 1, spec.y), [box.bottom, box.top], spec.y.log, (box.bottom - box.top) / 42);
  const image = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  axes(image, spec, box, x, y);
  for (const series of spec.series) MARKS[series.type](image, series, x, y, box, spec);
  for (const rule of spec.rules ?? []) {
    image.append(drawn("line", { class: "rule", x1: box.left, x2: box.right, y1: y(rule.y), y2: y(rule.y) }),
      drawn("text", { class: "mark", x: box.right, y: y(rule.y) - 5, "text-anchor": "end" }, rule.label));
  }
  plot.replaceChildren(image);
  if (spec.series.some((series) => series.type === "line")) cursor(plot, image, spec, x, box);
}

/** What an axis must hold, with a little air where it is linear. */
function domain(spec, axis, given) {
  if (given.domain) return given.domain;
  const values = (spec.rules ?? []).map((rule) => (axis ? rule.y : null)).filter((value) => value !== null);
  for (const series of spec.series) {
    for (const point of series.points) values.push(point[axis]);
    for (const [at, low, high] of series.band ?? []) values.push(...(axis ? [low, high] : [at]));
  }
  const [low, high] = extent(values.filter((value) => !given.log || value > 0));
  if (given.log || !axis) return [low, high];
  const air = (high - low) * 0.06;
  return [low - air, high + air];
}

function axes(image, spec, box, x, y) {
  for (const value of x.ticks) {
    image.append(drawn("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      drawn("text", { x: x(value), y: box.bottom + 15, "text-anchor": "middle" }, tickText(value, x.ticks)));
  }
  for (const value of y.ticks) {
    image.append(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      drawn("text", { x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, tickText(value, y.ticks)));
  }
  (spec.y.names ?? []).forEach((name, row) => {
    const most = Math.floor((box.left - 8) / 6.2);
    const short = name.length > most ? `${name.slice(0, most - 8)}…${name.slice(-7)}` : name; // the seed stays
    const place = { x: box.left - 6, y: y(row) + 4, "text-anchor": "end" };
    image.append(drawn("text", place, short, drawn("title", {}, name)));
  });
  image.append(drawn("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    drawn("text", { x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, spec.x.label));
}

const inside = (log, value) => value !== null && (!log || value > 0);

/** A value holds until the next one: a policy is in use until the next update. */
function steps(points, x, y) {
  const places = points.map(([at, value]) => [x(at).toFixed(1), y(value).toFixed(1)]);
  return places.map(([across, down], n) => (n ? `H${across}V${down}` : `M${across} ${down}`)).join("");
}

const MARKS = {
  line(image, series, x, y, box, spec) {
    const good = series.points.filter(([at, value]) => inside(spec.x.log, at) && inside(spec.y.log, value));
    const { colour, dash } = series.look;
    const style = `stroke: ${colour}; fill: none`;
    if (series.band?.length) {
      const shade = `fill: ${colour}; opacity: 0.16`;
      image.append(drawn("path", { class: "band", d: band(series, x, y, spec), style: shade }));
    }
    if (!good.length) return;
    const weight = series.faint
      ? { class: "run", "stroke-width": 1, opacity: 0.38 }
      : { class: "mean", "stroke-width": 2.2, "stroke-linejoin": "round" };
    image.append(drawn("path", { d: steps(good, x, y), style, "stroke-dasharray": dash, ...weight }));
    // a value that is merely held has no dot
    const changes = good.filter(([, value], n) => !n || value !== good[n - 1][1]);
    if (changes.length <= 40 && !series.faint) {
      image.append(drawn("path", { d: dots(changes, x, y), style, "stroke-width": 6, "stroke-linecap": "round" }));
    }
  },
  dots(image, series, x, y, box, spec) {
    const good = series.points.filter(([at, value]) => inside(spec.x.log, at) && inside(spec.y.log, value));
    const round = { "stroke-width": series.size, "stroke-linecap": "round", opacity: series.opacity ?? 0.8 };
    const style = `stroke: ${series.look.colour}`;
    image.append(drawn("path", { class: "dots", d: dots(good, x, y), style, ...round }));
  },
  ticks(image, series, x, y) {
    const d = series.points.map(([at, row]) => `M${x(at).toFixed(1)} ${(y(row) - 5).toFixed(1)}v10`).join("");
    image.append(drawn("path", { class: "ticks", d, style: `stroke: ${series.look.colour}`, "stroke-width": 1.6 }));
  },
  bars(image, series, x, y) {
    const step = series.points.length > 1 ? series.points[1][0] - series.points[0][0] : 1;
    const width = Math.max(0.5, x(step) - x(0) - 1);
    for (const [at, value] of series.points) {
      const size = { x: x(at - step / 2) + 0.5, y: y(value), width, height: Math.max(0, y(0) - y(value)) };
      image.append(drawn("rect", { ...size, style: `fill: ${series.look.colour}`, opacity: 0.85 },
        drawn("title", {}, `${number(at)}: ${number(value)}`)));
    }
  },
};

function dots(points, x, y) {
  return points.map(([at, value]) => `M${x(at).toFixed(1)} ${y(value).toFixed(1)}h0`).join("");
}

/** The area between low and high, in steps; what is not above zero ends at the edge of a logarithmic axis. */
function band(series, x, y, spec) {
  const good = series.band.filter(([at, , high]) => inside(spec.x.log, at) && inside(spec.y.log, high));
  if (!good.length) return "";
  const above = steps(good.map(([at, , high]) => [at, high]), x, y);
  const floor = (low) => (spec.y.log ? Math.max(low, y.low) : low);
  const below = good.map(([at, low]) => [x(at).toFixed(1), y(floor(low)).toFixed(1)]).reverse();
  const back = below.map(([, down], n) => (n < below.length - 1 ? `V${down}H${below[n + 1][0]}` : `V${down}`));
  return `${above}${back.join("")}Z`;
}

/** The value that holds at `at`, or null before the first. */
function heldAt(points, at) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1][1] : null;
}

const MOST_TOLD = 12;

/** A vertical line that follows mouse, finger or arrow keys and says what holds there. */
function cursor(plot, image, spec, x, box) {
  const line = drawn("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const tip = element("div", { class: "tip", hidden: true });
  image.append(line);
  plot.append(tip);
  const main = spec.series.filter((series) => series.type === "line" && !series.faint && series.points.length);
  const told = main.slice(0, MOST_TOLD);
  const places = new Set(told.flatMap((series) => series.points.map(([at]) => at)));
  const stops = [...places].filter((at) => inside(spec.x.log, at)).sort((a, b) => a - b);
  let stop = -1;
  const hide = () => {
    line.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const show = (at) => {
    const pixel = x(at);
    line.setAttribute("x1", pixel);
    line.setAttribute("x2", pixel);
    line.setAttribute("visibility", "visible");
    const heading = element("div", {}, `${number(at, 4)} ${spec.x.label}`);
    tip.replaceChildren(heading, ...told.map((series) => tipLine(series, at)));
    tip.hidden = false;
    const side = pixel > (box.left + box.right) / 2;
    tip.style.left = side ? "auto" : `${pixel + 10}px`;
    tip.style.right = side ? `${plot.clientWidth - pixel + 10}px` : "auto";
    tip.style.top = `${box.top}px`;
  };
  image.addEventListener("pointermove", (event) => {
    const across = event.clientX - image.getBoundingClientRect().left;
    show(x.back(Math.min(box.right, Math.max(box.left, across))));
  });
  image.addEventListener("pointerleave", hide);
  plot.onblur = hide;
  plot.onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !stops.length) return;
    event.preventDefault();
    stop = Math.min(stops.length - 1, Math.max(0, stop + move));
    show(stops[stop]);
  };
}

/** What one series says at `at`. */
function tipLine(series, at) {
  const spread = series.band && heldAt(series.band.map(([where, low, high]) => [where, (high - low) / 2]), at);
  return element("div", {},
    element("i", { style: `background: ${series.look.colour}` }), `${series.name} `,
    element("b", {}, number(heldAt(series.points, at))), spread ? ` ± ${number(spread, 2)}` : "");
}
