/* The marked window as a table: where its time went. */

import { byId, element, setText } from "../base/dom.mjs";
import { formatCount, formatMoment, formatShare, formatTime } from "../base/format.mjs";
import { addressOf, copyText, readView } from "../base/view.mjs";
import { formatCounter } from "./counters.mjs";
import { formatSigned } from "./ghost.mjs";
import { ask, askJson, explain } from "./server.mjs";
import { shapeTable, sortRows } from "./table_shape.mjs";

/** @import { Scene } from "./scene.mjs" */
/** @import { Answer, By, Cell, Column } from "./table_shape.mjs" */

const SHOWN = 600; /* rows */
const WORDS = ["text", "counter"]; /* kinds of columns that hold no numbers */
const PATHS = { difference: "/differences", counters: "/counters/window" };
const BY = /** @type {const} */ (["part", "category", "group", "name", "difference", "counters"]);

export class WindowTable {
  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.key = ""; /* the address of what is wanted */
    /** @type {Answer | null} */
    this.answer = null;
    this.window = 0; /* ns */
    /** @type {By} */
    this.by = "part";
    /** @type {"rank" | "all"} */
    this.per = "rank";
    this.sorting = { column: -1, isFalling: true };
    this.buttons = {
      /** @param {HTMLElement} button */
      "timeline-window-copy": (button) => this.#copy(button),
      "timeline-window-close": () => scene.change({ mark: null }),
    };
  }

  /** @param {import("../base/view.mjs").View} view */
  apply(view) {
    const { scene } = this, { marked } = scene, panel = byId("timeline-window");
    if (!panel) return;
    const wasHidden = panel.hidden, { ghost } = scene.timeline;
    panel.hidden = !marked || marked[1] <= marked[0];
    const by = BY.find((name) => name === view.by) ?? "part";
    this.by = by === "difference" && !ghost ? "part" : by;
    const isWhole = this.by in PATHS; /* of nodes, or of all ranks together */
    this.per = view.per === "all" && !isWhole ? "all" : "rank";
    panel.querySelector("[data-window-by=difference]")?.toggleAttribute("hidden", !ghost);
    panel.querySelector("[data-window-per]")?.parentElement?.toggleAttribute("hidden", isWhole);
    press(panel, "data-window-by", this.by);
    press(panel, "data-window-per", this.per);
    if (panel.hidden || !marked) {
      this.key = "";
      return;
    }
    const [from, to] = marked;
    setText("timeline-window-title", formatTime(to - from) + " from " + scene.formatMoment(from));
    if (wasHidden) scene.arrange(view.top);
    this.#ask(to - from);
  }

  /** @param {string} [suffix] */
  #address(suffix = "") {
    const { marked, timeline } = this.scene, { by, per } = this;
    const [from, to] = marked ?? [0, 0];
    if (by === "difference") return timeline.address(PATHS[by] + suffix, { from, to, ghost: timeline.ghost });
    if (by === "counters") return timeline.address(PATHS[by] + suffix, { from, to });
    return timeline.address("/window" + suffix, { from, to, by, per });
  }

  /** @param {number} window ns */
  #ask(window) {
    const key = this.#address();
    if (key === this.key) return;
    this.key = key;
    let isOver = false;
    this.scene.later("window", 300, () => {
      if (this.key === key && !isOver) setText("timeline-window-count", "Adding up…");
    });
    /** @type {Promise<Answer>} */
    const answer = askJson(key);
    answer.then((found) => {
      isOver = true;
      if (this.key !== key || !this.scene.isOpen) return;
      this.answer = found;
      this.window = window;
      this.sorting = { column: -1, isFalling: true };
      this.#show();
    }, (error) => {
      isOver = true;
      if (this.key === key && this.scene.isOpen) setText("timeline-window-count", explain(error));
    });
  }

  /** A button of the panel that has no id was clicked. @param {HTMLElement} button */
  press(button) {
    const by = button.getAttribute("data-window-by"), per = button.getAttribute("data-window-per");
    const sort = button.getAttribute("data-window-sort");
    if (by) this.scene.change({ by: by === "part" ? null : by });
    if (per) this.scene.change({ per: per === "rank" ? null : per });
    if (sort === null || !this.answer) return;
    const column = Number(sort), { sorting } = this;
    this.sorting = { column, isFalling: sorting.column === column ? !sorting.isFalling : column > 0 };
    this.#show();
    byId("timeline-window-table")?.querySelectorAll("button")[column]?.focus();
  }

  #show() {
    const box = byId("timeline-window-table"), { answer, sorting } = this;
    if (!box || !answer) return;
    const { head, rows } = shapeTable(answer, this.by, this.per, this.window);
    const sorted = sorting.column < 0 ? rows : sortRows(rows, sorting.column, sorting.isFalling);
    const table = element("table", { class: "cs-table" }), line = table.createTHead().insertRow();
    for (const [place, column] of head.entries()) {
      const order = sorting.column === place && (sorting.isFalling ? "descending" : "ascending");
      const button = element("button", { text: column.title, "data-window-sort": place });
      const style = { scope: "col", class: !WORDS.includes(column.kind) && "cs-num", "aria-sort": order };
      line.append(element("th", style, button));
    }
    const body = table.createTBody();
    for (const row of sorted.slice(0, SHOWN)) {
      const cells = body.insertRow(), { span } = this.scene.chart;
      head.forEach((column, place) => fillCell(cells.insertCell(), column, row[place], row, span));
    }
    box.replaceChildren(...(rows.length ? [table] : ["Nothing ran in this window."]));
    setText("timeline-window-count", this.#note(answer, head, rows));
  }

  /** What is to be said of a table. @param {Answer} answer @param {Column[]} head @param {Cell[][]} rows */
  #note(answer, head, rows) {
    const drawn = Math.min(rows.length, SHOWN);
    if ((answer.count ?? 0) > answer.rows.length || drawn < rows.length) {
      const [some, all] = [drawn, answer.count ?? rows.length].map(formatCount);
      return some + " of " + all + " rows; the copy has all";
    }
    /* Times of a line that make more than the window want a reason. */
    const isSplit = head.length > 2 && head.slice(1).every(({ kind }) => kind === "time");
    const sums = rows.map((row) => row.slice(1).reduce((sum, ns) => Number(sum) + Number(ns), 0));
    const isOver = isSplit && this.by !== "part" && sums.some((sum) => Number(sum) > this.window * 1.0005);
    if (isOver) return "what overlaps counts in every column; idle is bubble, host and stall";
    return this.by === "part" ? "the parts make the window" : "";
  }

  /** The table of the server, whole. @param {HTMLElement} button */
  async #copy(button) {
    const copied = ask(this.#address(".tsv")).then((answer) => answer.text()).then(copyText);
    setText(button, await copied.then(() => "Copied", () => "Not copied"));
    window.setTimeout(() => setText(button, "Copy TSV"), 1500);
  }
}

/** @param {Element} panel @param {string} name of the attribute @param {string} value */
function press(panel, name, value) {
  for (const button of panel.querySelectorAll("[" + name + "]")) {
    button.setAttribute("aria-pressed", String(button.getAttribute(name) === value));
  }
}

/** @param {number} number @param {number} [places] */
function writeInFull(number, places = 0) {
  return number.toLocaleString("en", { maximumFractionDigits: places });
}

/**
 * A link that changes the view in place, and opens elsewhere as itself.
 * @param {string} text @param {Record<string, string>} patch
 */
function viewLink(text, patch) {
  const href = addressOf(window.location.pathname, { ...readView(), ...patch });
  return element("a", { text, href, "data-view": JSON.stringify(patch) });
}

/**
 * `span` is that of the run.
 * @typedef {(cell: HTMLTableCellElement, value: number, row: Cell[], column: Column,
 *   span: number) => void} Fill
 */

/** @type {Record<string, Fill>} How cells of numbers are filled, by the kind of their column. */
const FILLS = {
  measure: (cell, value, row) => {
    const unit = String(row[5]);
    cell.textContent = formatCounter(unit, value);
    cell.title = unit === "share" ? String(value) : writeInFull(value, 6) + " " + unit;
  },
  moment: (cell, value, _row, _column, span) => {
    cell.textContent = formatMoment(value, span);
    cell.title = writeInFull(value) + " ns";
  },
  node: (cell, value, row) => {
    cell.append(viewLink(String(value), { rank: String(row[0]), node: String(value) }));
  },
  rank: (cell, value) => cell.append(viewLink(String(value), { top: String(value) })),
  time: (cell, value, _row, { full }) => {
    cell.textContent = value ? formatTime(Math.round(value)) : "0";
    cell.title = writeInFull(Math.round(value)) + " ns";
    if (!full) return;
    cell.classList.add("cs-window-bar");
    cell.style.setProperty("--share", ((100 * value) / full).toFixed(2) + "%");
  },
  sum: (cell, value) => {
    cell.textContent = value ? formatTime(Math.round(value)) : "0";
    cell.title = writeInFull(Math.round(value)) + " ns";
  },
  signed: (cell, value) => {
    cell.textContent = (value > 0 ? "▲ " : value < 0 ? "▼ " : "") + formatSigned(value);
    cell.title = writeInFull(value) + " ns";
    cell.classList.add(value > 0 ? "cs-worse" : value < 0 ? "cs-better" : "cs-same");
  },
  change: (cell, value) => {
    cell.textContent = value ? (value > 0 ? "+" : "−") + formatShare(Math.abs(value)) : "";
  },
  share: (cell, value) => {
    cell.textContent = formatShare(value, value < 0.1 ? 2 : 1);
    cell.title = String(value);
  },
  ratio: (cell, value) => {
    cell.textContent = value.toFixed(2);
    cell.title = String(value);
  },
  count: (cell, value) => {
    cell.textContent = formatCount(value);
  },
};

/**
 * @param {HTMLTableCellElement} cell @param {Column} column @param {Cell} value @param {Cell[]} row
 * @param {number} span
 */
function fillCell(cell, column, value, row, span) {
  const { kind } = column;
  if (!WORDS.includes(kind)) cell.className = "cs-num";
  const fill = FILLS[kind];
  if (fill) return fill(cell, /** @type {number} */ (value), row, column, span);
  cell.textContent = String(value);
  if (kind === "counter") cell.title = String(row[6]);
}
