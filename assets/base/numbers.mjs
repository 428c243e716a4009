/** The numbers behind a figure, in a dialog; and tables of the page, as a spreadsheet takes them. */

import { isNumeric, moveUnits, splitExact, writeTsv } from "./csv.mjs";
import { element } from "./dom.mjs";
import { formatCell, formatCount, plural } from "./format.mjs";
import { complain, copyText } from "./view.mjs";

/** @import { Table } from "./csv.mjs" */

/** Rows a dialog shows; copies and files hold all. */
const SHOWN = 1000;

/**
 * Copy a table; its button says so for a moment.
 *
 * @param {Element} button
 * @param {Table} table
 */
export async function copyTable(button, table) {
  try {
    await copyText(writeTsv(table));
  } catch (error) {
    complainOfSaving(error);
    return;
  }
  const before = button.textContent;
  button.textContent = "Copied";
  window.setTimeout(() => { button.textContent = before; }, 1500);
}

/** @param {unknown} error */
export function complainOfSaving(error) {
  const reason = error instanceof Error && error.message ? error.message : "the browser gives no reason";
  complain(`This could not be saved: ${reason}`);
}

/**
 * Show a table in a dialog.
 *
 * @param {string} title
 * @param {Table} table
 */
export function showTable(title, table) {
  const total = table.rows.length;
  const cut = `the first ${formatCount(SHOWN)} of ${formatCount(total)} rows; copies and files hold all`;
  const copy = element("button", { class: "cs-button", text: "Copy as TSV" });
  copy.addEventListener("click", () => copyTable(copy, table));
  const close = element("button", { class: "cs-button", text: "Close", onclick: () => dialog.close() });
  const count = element("span", { class: "cs-dim", text: total > SHOWN ? cut : plural(total, "row") });
  const name = element("h2", { text: title });
  const head = element("div", { class: "cs-numbers-head" }, name, count, copy, close);
  const scroll = element("div", { class: "cs-numbers-scroll", tabindex: 0 }, drawTable(table));
  const dialog = element("dialog", { class: "cs-numbers", "aria-label": title }, head, scroll);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {Table} table */
function drawTable({ head, rows }) {
  /** @param {unknown} value */
  const look = (value) => (isNumeric(value) ? "cs-num" : "");
  const names = head.map((name, column) =>
    element("th", { text: name, class: look(rows[0]?.[column]), scope: "col" }));
  /** @param {unknown} value */
  const drawCell = (value) => {
    const [exact, text] = [String(value ?? ""), formatCell(value)];
    return element("td", { text, class: look(value), ...(text === exact ? {} : { title: exact }) });
  };
  const lines = rows.slice(0, SHOWN).map((row) => element("tr", {}, ...row.map(drawCell)));
  const top = element("thead", {}, element("tr", {}, ...names));
  return element("table", { class: "cs-table" }, top, element("tbody", {}, ...lines));
}

/**
 * Read a table of the page: rounded figures by their exact value, and without the marks of definitions.
 *
 * @param {HTMLTableElement} grid
 * @returns {Table}
 */
export function readPageTable(grid) {
  const lines = Array.from(grid.querySelectorAll("tr"), (row) => Array.from(row.children));
  const [head = [], ...rows] = lines;
  return moveUnits(head.map(wordsOf), rows.map((row) => row.map((cell) => {
    const exact = cell.querySelector("[data-exact]")?.getAttribute("data-exact");
    return exact ? splitExact(exact) : wordsOf(cell);
  })));
}

/** @param {Element} cell */
function wordsOf(cell) {
  const copy = /** @type {Element} */ (cell.cloneNode(true));
  for (const mark of copy.querySelectorAll(".cs-hint")) mark.remove();
  return (copy.textContent ?? "").trim();
}
