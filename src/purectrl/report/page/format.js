/* Elements and numbers: nothing here knows about runs. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Text goes in as text: what a run wrote is never read as markup. */
function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const raised = (digit) => (digit === "-" ? "⁻" : RAISED[digit]);

/** A number for people: 65,536 and 0.978 and 2.0·10⁻⁵; a dash where there is none. */
function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e9) {
    const power = Math.floor(Math.log10(size) + 1e-12);
    const front = (value / 10 ** power).toFixed(1).replace("-", "−");
    return `${front}·10${[...String(power)].map(raised).join("")}`;
  }
  const places = Number.isInteger(value) ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toLocaleString("en", { minimumFractionDigits: 0, maximumFractionDigits: places }).replace("-", "−");
}

/** A mean with as many digits as its spread supports: "0.9738 ± 0.0071", "632 ± 11". */
function withSpread(mean, spread) {
  if (Math.abs(mean) < 1e-3 || Math.abs(mean) >= 1e9) return `${number(mean)} ± ${number(spread, 2)}`;
  const places = Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(spread))));
  const digits = { minimumFractionDigits: places, maximumFractionDigits: places };
  const round = (value) => value.toLocaleString("en", digits).replace("-", "−");
  return Number(spread.toFixed(places)) === 0 ? number(mean) : `${round(mean)} ± ${round(spread)}`;
}

/** "3 runs", "1 run". */
function counted(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** "a, b and c". */
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** A column's name as people say it. */
const SPOKEN = {
  reward: "measured reward",
  test_reward: "reward in tests",
  test_return: "return in tests",
  gap: "gap of the plan in use",
  average_gap: "average gap (regret / rollouts)",
  covered: "truth in both sets",
  covered_so_far: "truth in both sets so far",
  excess_drift: "excess loss of the drift / β",
  excess_reward: "excess loss of the reward / β",
};
function spoken(name) {
  return SPOKEN[name] ?? name.replace(/^test_(.*)$/, "$1 in tests").replaceAll("_", " ");
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** From numbers to pixels, linear or logarithmic, with ticks at round numbers. */
function scale([low, high], [from, to], log, room) {
  if (!(low <= high)) [low, high] = log ? [1, 10] : [0, 1];
  const air = (Math.abs(low) || 1) / 2;
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - air, high + air];
  const of = log ? Math.log10 : (value) => value;
  const start = of(low), width = of(high) - start;
  const place = (value) => from + ((of(value) - start) / width) * (to - from);
  place.back = (pixel) => {
    const value = start + ((pixel - from) / (to - from)) * width;
    return log ? 10 ** value : value;
  };
  place.low = low;
  place.ticks = log ? logTicks(low, high, room) : ticks(low, high, room);
  return place;
}

/** The label of a tick: as many digits as tell it from its neighbours. */
function tickText(value, all) {
  const gap = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value);
  const digits = value && gap ? 1 + Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(gap) + 1e-9) : 3;
  return number(value, Math.max(3, digits));
}

function ticks(low, high, room) {
  const rough = (high - low) / Math.max(2, room);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high, room) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const skip = Math.max(1, Math.ceil((last - first) / Math.max(2, room)));
  const factors = last - first <= Math.max(2, room) / 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += skip) {
    for (const factor of factors) found.push(Number((factor * 10 ** power).toPrecision(6)));
  }
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}
