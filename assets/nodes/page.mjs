/* The Nodes page: its controls, and the list in its grid. */

import { noUpdate, setProps } from "../base/dash.mjs";
import { byId, element, setVisible, targetOf } from "../base/dom.mjs";
import { pageTimers } from "../base/timers.mjs";
import { changeView, isTouched, readView } from "../base/view.mjs";
import { filterWords, rankOf, withoutFilter, withRank } from "./filters.mjs";
import { findGrid } from "./grid.mjs";
import { GRID, NodeList } from "./list.mjs";

/** @import { View } from "../base/view.mjs" */
/** @import { Listing } from "./list.mjs" */

/** How often a page looks for its grid, which may be drawn later than it, before it gives up. */
const TRIES = 300;

/** What the page keeps: its list, and what its controls show. */
class NodesPage {
  /** @type {NodeList | null} */
  #list = null;
  /** @type {string | null} the text in the search box */
  #typed = null;
  /** @type {string | null} */
  #rank = null;
  #later = pageTimers();

  /**
   * Follow the address, as soon as there is a grid.
   * @param {number} [tries]
   */
  follow(tries = TRIES) {
    const grid = findGrid(GRID);
    if (!grid) {
      const left = byId("nodes-page") ? tries : tries - 1;
      if (left > 0) this.#later("grid", 30, () => this.follow(left));
      return;
    }
    if (grid !== this.#list?.grid) {
      this.#typed = this.#rank = null;
      this.#list = new NodeList(grid, this.#later);
    }
    const view = readView();
    if (view.job) this.#showControls(this.#list.follow(view));
  }

  /**
   * Update the controls from the list, even if it is unchanged: going back renders the page again.
   * @param {Listing} list
   */
  #showControls({ q, f }) {
    if (document.activeElement?.id !== "nodes-search") {
      this.#typed = q;
      setProps("nodes-search", { value: q });
    }
    this.#rank = rankOf(f);
    setProps("nodes-rank", { value: this.#rank });
    setVisible(byId("nodes-clear"), Boolean(q || f));
    this.#showChips(f);
  }

  /**
   * Show each filter, to be taken away by a click.
   * @param {string} f
   */
  #showChips(f) {
    const list = this.#list, bar = byId("nodes-chips");
    if (!list || !bar) return;
    const chips = filterWords(list.gridFiltersOf(f)).map(([column, words]) => {
      const text = `${list.grid.getColumn(column)?.getColDef().headerName ?? column} ${words}`;
      return element("button", {
        class: "cs-nodes-chip", title: `Remove: ${text}`,
        onclick: () => changeView({ f: withoutFilter(readView().f ?? "", column) || null }),
      }, element("bdi", { text }), " ×");
    });
    bar.replaceChildren(...chips);
    setVisible(bar, chips.length > 0);
  }

  /** @param {string | null} value */
  search(value) {
    const text = value ?? "";
    if (text === this.#typed) return;
    this.#typed = text;
    this.#later("search", 200, () => changeView({ q: text || null }, { replace: true }));
  }

  /** @param {string | null} value */
  pickRank(value) {
    const rank = value || null;
    if (!rank && this.#rank && !isTouched("nodes-rank")) {
      /* The select forgot its value while its choices came. */
      this.#later("rank", 100, () => setProps("nodes-rank", { value: this.#rank }));
    } else if (rank !== this.#rank) {
      this.#rank = rank;
      changeView({ f: withRank(this.#list?.filters ?? "", rank) || null });
    }
  }
}

/**
 * Start what the Nodes page does in the browser.
 * @returns what Dash calls: see studio/pages/nodes/page.py
 */
export function startNodesPage() {
  const page = new NodesPage();
  document.addEventListener("click", (event) => {
    if (targetOf(event, "[data-nodes-clear]")) changeView({ q: null, f: null });
  });
  return {
    /** @param {View} view */
    follow(view) {
      setVisible(byId("nodes-none"), !view.job);
      setVisible(byId("nodes-page"), Boolean(view.job));
      page.follow();
      return noUpdate;
    },
    /** @param {string | null} value */
    search(value) {
      page.search(value);
      return noUpdate;
    },
    /** @param {string | null} value */
    pickRank(value) {
      page.pickRank(value);
      return noUpdate;
    },
  };
}
