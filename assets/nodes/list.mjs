/* The node list: rows come page by page from the server; filters, order and selection are the address's. */

import { byId, element, setText, setVisible } from "../base/dom.mjs";
import { formatCount, plural } from "../base/format.mjs";
import { addressOf, changeView } from "../base/view.mjs";
import { chooseColumns } from "./columns.mjs";
import { filterText, gridFilters, gridOrder, orderText } from "./filters.mjs";
import { NameCell } from "./name_cell.mjs";

/** @import { Patch, View } from "../base/view.mjs" */
/** @import { GridApi, GridEvent, Row, RowRequest } from "./grid.mjs" */
/** @typedef {(name: string, wait: number, act: () => void) => void} Later */

/**
 * What is listed.
 * @typedef {object} Listing
 * @property {string} job
 * @property {string} run
 * @property {string} q
 * @property {string} f
 * @property {string} sort
 * @property {string} [filters] what the grid has made of `f`
 * @property {string} [order] what the grid has made of `sort`
 * @property {Answer} [answer] the latest, without its rows
 * @property {boolean} [failed]
 */

/**
 * What the server says of a listing.
 * @typedef {object} Answer
 * @property {number} total nodes of the job
 * @property {number} count nodes that match
 * @property {string[]} empty columns without a value
 * @property {boolean} simulated whether the times are those of a run
 * @property {boolean} own_times whether recorded durations are without the operators that a node called
 */

/** @typedef {{ message: string, hint?: string }} Refusal */

export const GRID = "nodes-grid";

/** Nodes that the server puts into a file at most: SAVED_AT_MOST of studio/server/nodes.py. */
const SAVED_AT_MOST = 200_000;

const SILENT = { message: "The studio does not answer.", hint: "Is it still running?" };

/** The list in one grid. Of another grid, on the same page or another, it is another list. */
export class NodeList {
  /** @type {Listing | null} */
  #list = null;
  /** @type {string | null} rank and node, with a slash */
  #selected = null;
  /** @type {string | null} the selection that was made here: nothing to scroll to */
  #chosenHere = null;
  /** The column filtered last, and when: letters typed into one filter are one step. */
  #lastFilter = { column: "", time: 0 };

  /**
   * @param {GridApi} grid
   * @param {Later} later
   */
  constructor(grid, later) {
    this.grid = grid;
    this.later = later;
    const name = grid.getColumn("name");
    if (name) name.getColDef().cellRenderer = NameCell;
    grid.addEventListener("filterChanged", (event) => this.#change(event, "filter"));
    grid.addEventListener("sortChanged", (event) => this.#change(event, "sort"));
    grid.addEventListener("rowClicked", (event) => this.#select(event.data, false));
    grid.addEventListener("gridSizeChanged", () =>
      later("arrange", 100, () => {
        if (!grid.isDestroyed() && this.#list?.answer) this.#arrange(this.#list, this.#list.answer);
      }),
    );
    byId(GRID)?.addEventListener("keydown", (event) => this.#pressKey(event));
  }

  /** Filters of the address that is shown. */
  get filters() {
    return this.#list?.f ?? "";
  }

  /* ---- following the address ---- */

  /**
   * List what an address asks for.
   * @param {View} view
   * @returns {Listing}
   */
  follow(view) {
    const { job = "", run = "", q = "", f = "", sort = "" } = view;
    const before = this.#list;
    const isSame =
      before &&
      job === before.job &&
      run === before.run &&
      q === before.q &&
      f === before.f &&
      sort === before.sort;
    const list = isSame ? before : { job, run, q, f, sort };
    if (!isSame) this.#replace(list, before);
    else if (list.answer) this.#describe(list, list.answer);
    this.#followSelection(list, view);
    return list;
  }

  /**
   * List something else.
   * @param {Listing} list
   * @param {Listing | null} before
   */
  #replace(list, before) {
    const { grid } = this;
    /* What the user did to the grid after the address was written is on its way there: see #change. */
    const isAhead =
      before?.job === list.job &&
      (this.#filterText() !== before.filters || orderText(grid.getColumnState()) !== before.order);
    if (before?.job !== list.job) {
      setText("nodes-count", "");
      this.#selected = null;
    }
    this.#list = list;
    setVisible(byId("nodes-empty"), false);
    if (isAhead) {
      list.filters = filterText(this.gridFiltersOf(list.f));
      list.order = orderText(gridOrder(list.sort).filter(({ colId }) => grid.getColumn(colId)));
    } else {
      this.#filterGrid(list);
      list.filters = this.#filterText();
      list.order = orderText(grid.getColumnState());
    }
    grid.setGridOption("datasource", {
      getRows: (/** @type {RowRequest} */ request) => this.#sendRows(list, request),
    });
    grid.ensureIndexVisible(0, "top");
  }

  #filterText() {
    return filterText(this.grid.getFilterModel());
  }

  /**
   * The filters of an address as the grid takes them.
   * @param {string} text
   */
  gridFiltersOf(text) {
    return gridFilters(text, (name) => this.grid.getColumn(name)?.getColDef().context.text ?? null);
  }

  /**
   * Filter and order the grid as an address says.
   * @param {Listing} list
   */
  #filterGrid({ f, sort }) {
    const wanted = this.gridFiltersOf(f);
    if (filterText(wanted) !== this.#filterText()) this.grid.setFilterModel(wanted);
    if (orderText(this.grid.getColumnState()) === sort) return;
    this.grid.applyColumnState({ state: gridOrder(sort), defaultState: { sort: null, sortIndex: null } });
  }

  /**
   * Take over into the address what the user changed in the grid. Steps can be walked back; letters typed
   * cannot.
   *
   * While the grid is made, Dash puts back what it last knew of filters and order; then the address has
   * it right.
   * @param {GridEvent} event
   * @param {"filter" | "sort"} what
   */
  #change(event, what) {
    window.setTimeout(() => {
      const list = this.#list;
      if (this.grid.isDestroyed() || !list) return;
      const f = this.#filterText();
      const sort = orderText(this.grid.getColumnState());
      if (f === list.filters && sort === list.order) return;
      const { source } = event;
      const isByUser = what === "filter" ? source === "columnFilter" : source.startsWith("ui");
      if (!isByUser) {
        this.#filterGrid(list);
        return;
      }
      const column = (what === "filter" && event.columns?.[0]?.getColId()) || "";
      const now = Date.now();
      const isTyping =
        column !== "" && this.#lastFilter.column === column && now - this.#lastFilter.time < 2000;
      this.#lastFilter = { column, time: now };
      changeView({ f: f || null, sort: sort || null }, { replace: isTyping });
    }, 0);
  }

  /* ---- rows ---- */

  /**
   * @param {Listing} list
   * @param {string} path
   * @param {Patch} [more]
   */
  #address({ job, run, q, f, sort }, path, more) {
    return addressOf(`/api/jobs/${encodeURIComponent(job)}${path}`, { run, q, f, sort, ...more });
  }

  /**
   * Answer the grid's request for rows.
   * @param {Listing} list
   * @param {RowRequest} request
   */
  async #sendRows(list, { startRow, endRow, filterModel, sortModel, successCallback, failCallback }) {
    const order = orderText(sortModel.map((column, sortIndex) => ({ ...column, sortIndex })));
    /* After a change in the grid it asks before the address has it; the list of the new address asks
       again. */
    if (list !== this.#list || filterText(filterModel) !== list.filters || order !== list.order) {
      failCallback();
      return;
    }
    try {
      const response = await fetch(this.#address(list, "/nodes", { start: startRow, end: endRow }));
      const answer = await response.json();
      if (this.grid.isDestroyed()) return; // with the page that was left
      if (list !== this.#list) {
        failCallback();
        return;
      }
      if (answer.error) throw answer.error;
      const { rows, ...about } = answer;
      reportError(null);
      successCallback(rows, about.count);
      list.answer = about;
      this.#describe(list, about);
      this.#markSelection();
    } catch (error) {
      if (this.grid.isDestroyed()) return;
      failCallback();
      if (list !== this.#list) return;
      list.failed = true;
      reportError(isRefusal(error) ? error : SILENT);
    }
  }

  /**
   * Say how many nodes there are, and arrange columns, headings and what can be saved accordingly.
   * @param {Listing} list
   * @param {Answer} answer
   */
  #describe(list, answer) {
    const { total, count } = answer;
    setText("nodes-count", (count === total ? "" : `${formatCount(count)} of `) + plural(total, "node"));
    setVisible(byId("nodes-empty"), count === 0);
    const bar = /** @type {HTMLElement | null} */ (document.querySelector("#nodes-save .cs-export"));
    if (bar) {
      bar.dataset.source = this.#address(list, "/nodes.csv");
      bar.dataset.title =
        count > SAVED_AT_MOST
          ? `the first ${formatCount(SAVED_AT_MOST)} of ${formatCount(count)} nodes`
          : "the nodes";
    }
    this.#nameTimes(answer);
    this.#arrange(list, answer);
  }

  /**
   * Say in the headings whether times are those of a run, and in their hints whether they are nodes' own.
   * @param {Answer} answer
   */
  #nameTimes({ simulated, own_times: ownTimes }) {
    const widths = [];
    let isChanged = false;
    for (const column of this.grid.getColumns()) {
      const definition = column.getColDef();
      const { run_width: runWidth, explained, own } = definition.context;
      const isRecorded = !simulated || !runWidth;
      const tooltip = (ownTimes && isRecorded && own) || explained;
      isChanged ||= definition.headerTooltip !== tooltip;
      definition.headerTooltip = tooltip;
      if (!runWidth || definition.headerName.endsWith(" in run") === simulated) continue;
      definition.headerName = definition.headerName.replace(/ in run$/, "") + (simulated ? " in run" : "");
      const newWidth = (simulated ? runWidth : definition.width) ?? runWidth;
      widths.push({ key: column.getColId(), newWidth });
    }
    if (widths.length) this.grid.setColumnWidths(widths);
    if (widths.length || isChanged) this.grid.refreshHeader();
  }

  /**
   * Show the columns that have values and room, and say which are left out.
   * @param {Listing} list
   * @param {Answer} answer
   */
  #arrange(list, { empty, simulated }) {
    const { grid } = this;
    const columns = grid.getColumns();
    const widths = columns.map((column) => {
      const name = column.getColId();
      return { name, width: name === "name" ? column.getMinWidth() : column.getActualWidth() };
    });
    const used = `${list.f},${list.sort}`;
    const { shown, narrow } = chooseColumns(widths, (byId(GRID)?.clientWidth ?? 0) - 20, {
      empty,
      simulated,
      used,
    });
    const cell = grid.getFocusedCell();
    for (const column of columns) {
      const visible = shown.has(column.getColId());
      if (visible !== column.isVisible()) grid.setColumnsVisible([column], visible);
    }
    /* The row keeps the focus where the column that had it went. */
    if (cell && !cell.column.isVisible()) grid.setFocusedCell(cell.rowIndex, "name");
    const titles = (/** @type {string[]} */ names) =>
      names.map((name) => grid.getColumn(name)?.getColDef().headerName.toLowerCase()).join(", ");
    const sentences = [];
    if (empty.length) sentences.push(`no node has: ${titles(empty)}`);
    if (narrow.length) sentences.push(`hidden for lack of space: ${titles(narrow)}`);
    setText("nodes-lacks", sentences.join(" · "));
    // The line may cut it.
    byId("nodes-lacks")?.setAttribute("title", sentences.join(" · "));
    byId(GRID)?.setAttribute("data-arranged", "");
  }

  /* ---- selection ---- */

  #markSelection() {
    const node = this.#selected ? this.grid.getRowNode(this.#selected) : undefined;
    if (node?.data) {
      if (!node.isSelected()) node.setSelected(true, true);
    } else if (this.grid.getSelectedNodes().length) {
      this.grid.deselectAll();
    }
  }

  /**
   * Select the node of a row.
   * @param {Row | undefined} row
   * @param {boolean} replace whether this is no step to walk back
   */
  #select(row, replace) {
    if (!row) return;
    this.#chosenHere = `${row.rank}/${row.ref}`;
    changeView({ rank: row.rank, node: row.ref }, { replace });
  }

  /** @param {KeyboardEvent} event */
  #pressKey(event) {
    if (!(event.target instanceof Element) || !event.target.closest(".ag-row")) return;
    if (event.key === "Enter") {
      this.#select(this.#focusedRow(), false);
      return;
    }
    /* With the inspector open it follows the focus; without, looking around opens nothing. */
    if (this.#selected && /^(Arrow(Up|Down)|Page(Up|Down)|Home|End)$/.test(event.key)) {
      this.later("focus", 120, () => this.#select(this.#focusedRow(), true));
    }
  }

  #focusedRow() {
    const cell = this.grid.isDestroyed() ? null : this.grid.getFocusedCell();
    return cell ? this.grid.getDisplayedRowAtIndex(cell.rowIndex)?.data : undefined;
  }

  /**
   * Mark the node of the address, and scroll to it if it was not selected here.
   * @param {Listing} list
   * @param {View} view
   */
  #followSelection(list, { rank, node }) {
    const first = this.grid.getDisplayedRowAtIndex(0)?.data?.rank ?? "0";
    const wanted = node ? `${rank ?? first}/${node}` : null;
    if (wanted === this.#selected) return;
    this.#selected = wanted;
    this.#markSelection();
    if (wanted && wanted !== this.#chosenHere) this.#reveal(list, wanted, node);
    this.#chosenHere = null;
  }

  /**
   * Scroll to a node, wherever in the list it is.
   * @param {Listing} list
   * @param {string} wanted
   * @param {string} node
   */
  async #reveal(list, wanted, node) {
    const rank = wanted.slice(0, wanted.indexOf("/"));
    try {
      const response = await fetch(this.#address(list, "/nodes/position", { rank, node }));
      const { position } = await response.json();
      if (list !== this.#list || wanted !== this.#selected || typeof position !== "number") return;
      this.#scroll(list, position, 20);
    } catch {
      /* The inspector says what is wrong with the node. */
    }
  }

  /**
   * Scroll to a row. The grid cannot scroll to rows it does not know, and learns of them a moment after
   * they came.
   * @param {Listing} list
   * @param {number} position
   * @param {number} tries
   */
  #scroll(list, position, tries) {
    const { grid } = this;
    if (list !== this.#list || list.failed || grid.isDestroyed()) return;
    const isThere = position < grid.getDisplayedRowCount() && (grid.isLastRowIndexKnown() || !tries);
    if (isThere) grid.ensureIndexVisible(position, "middle");
    else if (tries) {
      this.later("scroll", 50, () => this.#scroll(list, position, list.answer ? tries - 1 : tries));
    }
  }
}

/**
 * Whether an error is the server's refusal of the address.
 * @param {unknown} error
 * @returns {error is Refusal}
 */
function isRefusal(error) {
  return typeof error === "object" && error !== null && "hint" in error;
}

/**
 * Say why there is no list, or that there is one.
 * @param {Refusal | null} error
 */
function reportError(error) {
  const box = byId("nodes-error");
  if (!box) return;
  if (error) byId(GRID)?.setAttribute("data-arranged", "");
  box.className = error ? "cs-error" : "";
  box.replaceChildren();
  if (!error) return;
  box.append(
    element("strong", {}, "The nodes cannot be listed"),
    element("p", {}, error.message),
    element("p", {}, error.hint ?? ""),
  );
  setVisible(byId("nodes-empty"), false);
  setText("nodes-count", "");
}
