/** The SQL page: the query lives in the address; Ctrl+Enter asks it. */

import { byId } from "../base/dom.mjs";
import { changeView } from "../base/view.mjs";

const FIELD = "sql-query";

/** Puts what is typed into the address, which asks it. */
function ask() {
  const field = byId(FIELD);
  if (field instanceof HTMLTextAreaElement) changeView({ sql: field.value.trim() || null });
}

/**
 * Start what the SQL page does in the browser.
 * @returns what Dash calls: see studio/pages/sql/page.py
 */
export function startSqlPage() {
  document.addEventListener("keydown", (event) => {
    const isField = event.target instanceof Element && event.target.id === FIELD;
    if (!isField || event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ask();
  });
  return {
    ask: () => {
      ask();
      return "";
    },
  };
}
