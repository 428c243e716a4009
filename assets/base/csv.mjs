/** Tables as CSV and TSV. No page is needed here. */

/** @typedef {string | number | null | undefined} Cell */
/** @typedef {{ head: string[], rows: Cell[][] }} Table */

/**
 * Parse CSV with quotes.
 *
 * @param {string} text
 * @returns {string[][]} rows, the head first
 */
export function parseCsv(text) {
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  const fields = /(?:"((?:[^"]|"")*)"|([^",\n\r]*))(,|\r?\n|$)/y;
  while (fields.lastIndex < text.length) {
    const match = fields.exec(text);
    if (!match) throw new Error("this is no CSV");
    row.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === ",") {
      if (fields.lastIndex < text.length) continue;
      row.push("");
    }
    rows.push(row);
    row = [];
  }
  return rows;
}

/**
 * A value as text. One that a spreadsheet would take for a formula gets an apostrophe before it; a number
 * is none.
 *
 * @param {Cell} value
 */
function textOf(value) {
  const text = String(value ?? "");
  const isFormula = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text.replace(/ %$/, "")));
  return isFormula ? `'${text}` : text;
}

/**
 * @param {Table} table
 * @returns {string}
 */
export function writeCsv({ head, rows }) {
  /** @param {Cell} value */
  const quoted = (value) => {
    const text = textOf(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${[head, ...rows].map((row) => row.map(quoted).join(",")).join("\n")}\n`;
}

/**
 * @param {Table} table
 * @returns {string}
 */
export function writeTsv({ head, rows }) {
  /** @param {Cell} value */
  const plain = (value) => textOf(value).replace(/[\t\r\n]+/g, " ");
  return [head, ...rows].map((row) => row.map(plain).join("\t")).join("\n");
}

/** @param {unknown} value */
export function isNumeric(value) {
  if (typeof value === "number") return true;
  return typeof value === "string" && value !== "" && !Number.isNaN(Number(value));
}

/**
 * Head and rows of a table whose cells are words or numbers with units: the unit moves into the head where
 * a column has one, and stays with its numbers where it has several. Columns without a name, which hold
 * buttons, are left out.
 *
 * @param {string[]} head
 * @param {(string | { number: string, unit: string })[][]} rows
 * @returns {Table}
 */
export function moveUnits(head, rows) {
  const units = head.map((_name, column) => {
    const cells = rows.map((row) => row[column]).filter((cell) => typeof cell === "object");
    return [...new Set(cells.map((cell) => cell.unit))];
  });
  const named = head.flatMap((name, column) => (name ? [column] : []));
  return {
    head: named.map((column) => {
      const [unit, ...others] = units[column] ?? [];
      return unit && !others.length ? `${head[column]} (${unit})` : head[column] ?? "";
    }),
    rows: rows.map((row) => named.map((column) => {
      const cell = row[column] ?? "";
      if (typeof cell === "string") return cell;
      return (units[column] ?? []).length > 1 && cell.unit ? `${cell.number} ${cell.unit}` : cell.number;
    })),
  };
}

/**
 * The number and the unit an exact value such as "1,234 ns" states; its text where it states none.
 *
 * @param {string} text
 * @returns {string | { number: string, unit: string }}
 */
export function splitExact(text) {
  const parts = /^([+−-]?[\d,]+(?:\.\d+)?)(?: ([A-Za-zµ/%]+))?/.exec(text);
  if (!parts?.[1]) return text;
  return { number: parts[1].replaceAll(",", "").replace("−", "-"), unit: parts[2] ?? "" };
}
