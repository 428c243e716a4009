/* What the node list uses of AG Grid. */

import { gridOf } from "../base/dash.mjs";
import { byId } from "../base/dom.mjs";

/** @import { ColumnOrder, FilterModel } from "./filters.mjs" */

/**
 * A row as the server sends it: texts by column.
 * @typedef {Record<string, string>} Row
 */

/**
 * @typedef {object} ColumnDefinition
 * @property {string} headerName
 * @property {string} [headerTooltip]
 * @property {number} [width]
 * @property {unknown} [cellRenderer]
 * @property {{ text: boolean, run_width?: number | null, explained: string, own: string }} context what
 *   studio/pages/nodes/page.py says of the column: whether it holds texts, how wide it is while its times are
 *   those of a run, how it is explained, and how where recorded durations are nodes' own times
 */

/**
 * @typedef {object} Column
 * @property {() => string} getColId
 * @property {() => ColumnDefinition} getColDef
 * @property {() => number} getMinWidth
 * @property {() => number} getActualWidth
 * @property {() => boolean} isVisible
 */

/**
 * @typedef {object} RowNode
 * @property {Row} [data]
 * @property {() => boolean} isSelected
 * @property {(selected: boolean, alone?: boolean) => void} setSelected
 */

/**
 * @typedef {object} RowRequest
 * @property {number} startRow
 * @property {number} endRow
 * @property {FilterModel} filterModel
 * @property {ColumnOrder[]} sortModel
 * @property {(rows: Row[], count: number) => void} successCallback
 * @property {() => void} failCallback
 */

/**
 * @typedef {object} GridEvent
 * @property {string} source what caused it
 * @property {Column[]} [columns]
 * @property {Row} [data]
 */

/**
 * @typedef {object} GridApi
 * @property {() => boolean} isDestroyed
 * @property {(name: string) => unknown} getGridOption
 * @property {(name: string, value: unknown) => void} setGridOption
 * @property {(name: string, act: (event: GridEvent) => void) => void} addEventListener
 * @property {(name: string) => Column | null} getColumn
 * @property {() => Column[]} getColumns
 * @property {() => ColumnOrder[]} getColumnState
 * @property {(state: { state: ColumnOrder[], defaultState: Partial<ColumnOrder> }) => void}
 *   applyColumnState
 * @property {(widths: { key: string, newWidth: number }[]) => void} setColumnWidths
 * @property {(columns: Column[], visible: boolean) => void} setColumnsVisible
 * @property {() => FilterModel} getFilterModel
 * @property {(model: FilterModel) => void} setFilterModel
 * @property {() => void} refreshHeader
 * @property {(id: string) => RowNode | undefined} getRowNode
 * @property {() => RowNode[]} getSelectedNodes
 * @property {() => void} deselectAll
 * @property {() => { rowIndex: number, column: Column } | null} getFocusedCell
 * @property {(row: number, column: string) => void} setFocusedCell
 * @property {(row: number) => RowNode | undefined} getDisplayedRowAtIndex
 * @property {() => number} getDisplayedRowCount
 * @property {() => boolean | undefined} isLastRowIndexKnown
 * @property {(row: number, place: "top" | "middle") => void} ensureIndexVisible
 */

/**
 * Return the grid of an element once it is ready for a source of rows: Dash gives it one of its own first.
 * @param {string} id
 * @returns {GridApi | null}
 */
export function findGrid(id) {
  /** @type {GridApi | undefined} */
  const grid = byId(id) ? gridOf(id) : undefined;
  return grid && !grid.isDestroyed() && grid.getGridOption("datasource") ? grid : null;
}
