/** Which columns of the node list are shown, and how a long name is cut. No DOM. */

/** Columns that go first where the window is narrow, the least important first. */
const LEAST = [
  "waits_for",
  "operations",
  "end_ns",
  "recorded_start_ns",
  "id",
  "collective",
  "start_ns",
  "group",
  "recorded_duration_ns",
  "type",
];

/** Characters at the end of a long name that are always shown: operators with one prefix differ there. */
const TAIL = 16;

/**
 * @typedef {object} ColumnWidth
 * @property {string} name
 * @property {number} width what it takes, of a column that grows the least
 */

/**
 * Choose the columns that are shown: none without a value, and only as many as there is room for.
 *
 * What was recorded has columns of its own only while a run is shown, or where the address filters or
 * sorts by them.
 * @param {readonly ColumnWidth[]} columns
 * @param {number} width that there is
 * @param {object} list
 * @param {readonly string[]} list.empty columns without a single value
 * @param {boolean} list.simulated whether the times are those of a run
 * @param {string} list.used filters and order of the address
 * @returns {{ shown: Set<string>, narrow: string[] }} names of columns; those there is no room for
 */
export function chooseColumns(columns, width, { empty, simulated, used }) {
  const isUsed = (/** @type {string} */ name) => used.includes(name);
  const shown = new Map(
    columns
      .filter(({ name }) => !empty.includes(name))
      .filter(({ name }) => simulated || !name.startsWith("recorded_") || isUsed(name))
      .map((column) => [column.name, column.width]),
  );
  let needed = [...shown.values()].reduce((sum, each) => sum + each, 0);
  const narrow = [];
  for (const name of LEAST) {
    if (needed <= width || !shown.has(name) || isUsed(name)) continue;
    needed -= shown.get(name) ?? 0;
    shown.delete(name);
    narrow.push(name);
  }
  return { shown: new Set(shown.keys()), narrow };
}

/**
 * Split a long name into a head that may be shortened and a tail that is always shown.
 * @param {string} name
 * @returns {[string, string] | null} null if the name is short
 */
export function splitName(name) {
  if (name.length < TAIL + 6) return null;
  let cut = name.length - TAIL;
  const code = name.charCodeAt(cut);
  if (code >= 0xdc00 && code < 0xe000) cut--; // not between the halves of a surrogate pair
  return [name.slice(0, cut), name.slice(cut)];
}
