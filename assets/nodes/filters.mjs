/**
 * Filters and orders of the node list, as the address and as AG Grid write them. No DOM.
 *
 * In the address a filter is `{column: [operator, value]}`, two joined ones are `{column: ["AND", [...],
 * [...]]}`, and an
 * order is `name,-name`, where the minus means falling.
 */

/** @typedef {{ filterType: "text", type: string, filter?: string | null }} Condition */
/** @typedef {{ filterType: "text", operator: string, conditions: Condition[] }} JoinedConditions */
/** @typedef {Record<string, Condition | JoinedConditions>} FilterModel */
/** @typedef {{ colId: string, sort?: string | null, sortIndex?: number | null }} ColumnOrder */

/**
 * How addresses of an earlier studio compare numbers, as people write it today.
 * @type {Record<string, string>}
 */
const SIGNS = {
  equals: "",
  notEqual: "!= ",
  greaterThan: "> ",
  greaterThanOrEqual: ">= ",
  lessThan: "< ",
  lessThanOrEqual: "<= ",
};

/**
 * Write an object as JSON with its keys in order, nothing if it has none.
 * @param {Record<string, unknown>} object
 */
function sortedJson(object) {
  const keys = Object.keys(object).sort();
  return keys.length ? JSON.stringify(Object.fromEntries(keys.map((key) => [key, object[key]]))) : "";
}

/**
 * Shorten a condition of the grid to what the address says of it.
 * @param {Condition} condition
 */
function shorten({ type, filter }) {
  return filter === undefined || filter === null ? [type] : [type, filter];
}

/**
 * Write the grid's filters as the address does.
 * @param {FilterModel} model
 */
export function filterText(model) {
  const short = Object.entries(model).map(([column, condition]) => [
    column,
    "operator" in condition
      ? [condition.operator, ...condition.conditions.map(shorten)]
      : shorten(condition),
  ]);
  return sortedJson(Object.fromEntries(short));
}

/**
 * Read the filters of an address; text that is none counts as none.
 * @param {string | undefined} text
 * @returns {Record<string, unknown>}
 */
export function readFilters(text) {
  try {
    const filters = text ? JSON.parse(text) : {};
    return filters && typeof filters === "object" && !Array.isArray(filters) ? filters : {};
  } catch {
    return {};
  }
}

/**
 * Return a condition of an address as the grid takes it.
 * @param {unknown[]} parts
 * @param {boolean} isText whether the column holds texts
 * @returns {Condition}
 */
function lengthen(parts, isText) {
  let [type, ...values] = parts.map(String);
  if (!isText && type in SIGNS) [type, values] = ["matches", [SIGNS[type] + values[0]]];
  if (!isText && type === "inRange") [type, values] = ["matches", [`${values[0]}..${values[1]}`]];
  return { filterType: "text", type, ...(values.length ? { filter: values[0] } : {}) };
}

/**
 * Read the filters of an address as the grid takes them; of columns it does not have none.
 * @param {string} text
 * @param {(column: string) => boolean | null} isText whether a column holds texts, null if there is none
 *   of this name
 */
export function gridFilters(text, isText) {
  /** @type {FilterModel} */
  const model = {};
  for (const [column, parts] of Object.entries(readFilters(text))) {
    const textual = isText(column);
    if (!Array.isArray(parts) || textual === null) continue;
    model[column] =
      parts[0] === "AND" || parts[0] === "OR"
        ? {
            filterType: "text",
            operator: parts[0],
            conditions: parts.slice(1).map((part) => lengthen(part, textual)),
          }
        : lengthen(parts, textual);
  }
  return model;
}

/** @type {Record<string, string>} */
const WORDS = {
  contains: "contains", notContains: "does not contain", equals: "is", notEqual: "is not",
  startsWith: "begins with", endsWith: "ends with", blank: "is blank", notBlank: "is not blank", matches: "",
};

/** @param {Condition} condition */
const conditionWords = ({ type, filter }) => [WORDS[type] ?? type, filter].filter(Boolean).join(" ");

/**
 * Say what each filter asks for.
 * @param {FilterModel} model
 * @returns {[string, string][]} the column, and the words that follow its title
 */
export function filterWords(model) {
  return Object.entries(model).map(([column, condition]) => [
    column,
    "operator" in condition
      ? condition.conditions.map(conditionWords).join(` ${condition.operator.toLowerCase()} `)
      : conditionWords(condition),
  ]);
}

/**
 * Return the filters of an address without that of a column.
 * @param {string} text
 * @param {string} column
 */
export function withoutFilter(text, column) {
  const filters = readFilters(text);
  delete filters[column];
  return sortedJson(filters);
}

/**
 * Write the order of the grid as the address does.
 * @param {readonly ColumnOrder[]} columns
 */
export function orderText(columns) {
  return columns
    .filter((column) => column.sort)
    .sort((a, b) => (a.sortIndex ?? 0) - (b.sortIndex ?? 0))
    .map((column) => (column.sort === "desc" ? "-" : "") + column.colId)
    .join(",");
}

/**
 * Read the order of an address as the grid takes it.
 * @param {string} text
 * @returns {ColumnOrder[]}
 */
export function gridOrder(text) {
  return text
    .split(",")
    .filter(Boolean)
    .map((name, sortIndex) =>
      name.startsWith("-")
        ? { colId: name.slice(1), sort: "desc", sortIndex }
        : { colId: name, sort: "asc", sortIndex },
    );
}

/**
 * Return the rank that the filters of an address leave alone, if they leave exactly one.
 * @param {string} text
 */
export function rankOf(text) {
  const { rank } = readFilters(text);
  const isSingle = Array.isArray(rank) && ["equals", "matches"].includes(rank[0]) && /^\d+$/.test(rank[1]);
  return isSingle ? String(rank[1]) : null;
}

/**
 * Return the filters of an address with another rank, or with all.
 * @param {string} text
 * @param {string | null} rank
 */
export function withRank(text, rank) {
  return rank ? sortedJson({ ...readFilters(text), rank: ["matches", rank] }) : withoutFilter(text, "rank");
}
