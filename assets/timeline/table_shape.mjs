/* The tables of a marked window, from the rows the server sends. No DOM. */

/** @typedef {string | number} Cell */
/** @typedef {"part" | "category" | "group" | "name" | "difference" | "counters"} By */

/**
 * Rows as studio/server/windows.py, differences.py and counters.py send them, and how many there are.
 * @typedef {{rows: Cell[][], count?: number}} Answer
 */

/**
 * A column: what it holds, and for times the ns that fill its bar.
 * @typedef {{title: string, kind: Kind, full?: number}} Column
 */

/**
 * @typedef {"text" | "counter" | "rank" | "node" | "time" | "moment" | "signed" | "change" | "measure"
 *   | "share" | "ratio" | "count" | "sum"} Kind
 */

/** @typedef {{head: Column[], rows: Cell[][]}} Shape */

const ORDER = ["compute", "collective", "send", "receive", "copy", "memory", "CPU", "stream idle", "idle"];
/** The parts of a rank's time, see studio/analysis/job/ledger.py. */
const PARTS = [
  "overlapped", "compute", "copy", "waiting", "bubble", "queueing", "latency", "transfer", "communication",
  "host", "stall", "after_finish",
];

/** @param {...[string, Kind, number?]} columns @returns {Column[]} */
function makeHead(...columns) {
  return columns.map(([title, kind, full]) => ({ title, kind, full }));
}

/**
 * @param {Answer} answer @param {By} by @param {"rank" | "all"} per
 * @param {number} window ns
 * @returns {Shape}
 */
export function shapeTable({ rows }, by, per, window) {
  if (by === "difference") return shapeDifferences(rows);
  if (by === "counters") return shapeCounters(rows);
  if (per === "all") return shapeTotals(rows);
  if (by === "category") return shapeSplit(rows, window, ORDER);
  if (by === "part") return shapeParts(rows, window);
  const what = by === "group" ? "comm group" : "name";
  const columns = makeHead(["rank", "rank"], [what, "text"], ["nodes", "count"], ["time", "time", window]);
  return { head: [...columns, { title: "of the window", kind: "share" }], rows };
}

/** @param {Cell[][]} rows rank, node, name, here, there, more, begins here, begins there @returns {Shape} */
function shapeDifferences(rows) {
  return {
    head: makeHead(
      ["rank", "rank"], ["node", "node"], ["name", "text"], ["here", "time"], ["other run", "time"],
      ["difference", "signed"], ["", "change"], ["issued here", "time"], ["other run", "time"],
    ),
    rows: rows.map(([rank, node, name, here, there, more, ...begins]) => {
      return [rank, node, name, here, there, more, there ? Number(more) / Number(there) : 0, ...begins];
    }),
  };
}

/** @param {Cell[][]} rows counter, unit, mean, most, from, until, about @returns {Shape} */
function shapeCounters(rows) {
  return {
    head: makeHead(
      ["counter", "counter"], ["mean", "measure"], ["maximum", "measure"], ["first at", "moment"],
      ["for", "time"],
    ),
    rows: rows.map(([counter, unit, mean, most, from, until, about]) => {
      return [counter, mean, most, from, Number(until) - Number(from), unit, about];
    }),
  };
}

/**
 * @param {Cell[][]} rows what, ranks, nodes, total, mean, least, its rank, most, its rank
 * @returns {Shape}
 */
function shapeTotals(rows) {
  const full = Math.max(1, ...rows.map(([, , , total]) => Number(total)));
  return {
    head: makeHead(
      ["what", "text"], ["ranks", "count"], ["nodes", "count"], ["total", "time", full],
      ["mean of a rank", "time"], ["least", "time"], ["on rank", "rank"], ["most", "time"],
      ["on rank", "rank"], ["most / mean", "ratio"],
    ),
    rows: rows.map((row) => [...row.slice(0, 9), row[4] ? Number(row[7]) / Number(row[4]) : 1]),
  };
}

const EXPOSED = ["waiting", "queueing", "latency", "transfer", "communication"];
const IDLE = ["bubble", "host", "stall"];

/**
 * A column for each part, and for the sums of some. The parts of a rank add up to the window.
 * @param {Cell[][]} rows rank, part, nodes, time
 * @param {number} window @returns {Shape}
 */
function shapeParts(rows, window) {
  const { head, rows: lines } = shapeSplit(rows, window, PARTS), names = head.map(({ title }) => title);
  /** @type {[string, string[]][]} */
  const sums = [["exposed", EXPOSED], ["idle", IDLE]];
  const shown = sums.filter(([, parts]) => parts.filter((part) => names.includes(part)).length > 1);
  return {
    head: [
      ...head.map((column) => ({ ...column, title: column.title.replace("_", " ") })),
      ...shown.map(([title]) => ({ title, kind: /** @type {const} */ ("sum") })),
    ],
    rows: lines.map((line) => [...line, ...shown.map(([, parts]) => {
      return line.reduce((sum, ns, at) => Number(sum) + (parts.includes(names[at]) ? Number(ns) : 0), 0);
    })]),
  };
}

/**
 * A column for each heading.
 * @param {Cell[][]} rows rank, heading, nodes, time
 * @param {number} window @param {string[]} order of the headings
 * @returns {Shape}
 */
function shapeSplit(rows, window, order) {
  const names = [...new Set(rows.map(([, name]) => String(name)))];
  names.sort((a, b) => order.indexOf(a) - order.indexOf(b));
  /** @type {Map<Cell, Map<string, Cell>>} */
  const lines = new Map();
  for (const [rank, name, , time] of rows) {
    const line = lines.get(rank) ?? new Map();
    lines.set(rank, line.set(String(name), time));
  }
  return {
    head: [...makeHead(["rank", "rank"]), ...names.flatMap((name) => makeHead([name, "time", window]))],
    rows: [...lines].map(([rank, line]) => [rank, ...names.map((name) => line.get(name) ?? 0)]),
  };
}

/** @param {Cell[][]} rows @param {number} column @param {boolean} isFalling */
export function sortRows(rows, column, isFalling) {
  return [...rows].sort((a, b) => {
    const [one, two] = [a[column], b[column]];
    const order = typeof one === "string" ? one.localeCompare(String(two)) : Number(one) - Number(two);
    return isFalling ? -order : order;
  });
}
