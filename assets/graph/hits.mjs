/* Steps through the hits of a search. */

import { byId, targetOf } from "../base/dom.mjs";
import { changeView, readView } from "../base/view.mjs";

/** How long a step waits for the one before it. */
const PATIENCE_MS = 10_000;

/**
 * Steps from hit to hit. A step leads to a hit whose own neighbours are still to be asked for; steps that
 * are faster
 * than the answers wait for them.
 */
export class HitSteps {
  /** @type {string | null} the step taken last, as its button says it */
  #last = null;
  /** @type {{ id: string, until: number }[]} buttons pressed too early */
  #owed = [];
  /** @type {string | null} a search whose first hit is wanted */
  #wanted = null;

  constructor() {
    document.addEventListener("click", (event) => this.#press(event), true);
    document.addEventListener(
      "pointerdown",
      (event) => {
        if (!targetOf(event, "#graph-next, #graph-previous")) this.#owed = [];
      },
      true,
    );
  }

  /** @param {MouseEvent} event */
  #press(event) {
    const button = targetOf(event, "#graph-next, #graph-previous");
    if (!button) return;
    const step = button.getAttribute("data-view") ?? "{}";
    if (step === this.#last && readView().node === String(JSON.parse(step).node)) {
      this.#owed.push({ id: button.id, until: Date.now() + PATIENCE_MS });
      event.stopPropagation();
    } else this.#last = step;
  }

  /**
   * Take the steps that waited for an answer.
   * @param {string | undefined} q search that is shown
   * @param {boolean} isFound whether it has hits
   */
  goOn(q, isFound) {
    window.setTimeout(() => this.#takeOwed(), 0);
    if (this.#wanted === null || this.#wanted !== q || !isFound) return;
    this.#wanted = null;
    window.setTimeout(() => byId("graph-next")?.click(), 0);
  }

  #takeOwed() {
    const [first] = this.#owed;
    const button = first && byId(first.id);
    if (!button || button.getAttribute("data-view") === this.#last) return;
    this.#owed.shift();
    if (first.until < Date.now()) this.#owed = [];
    else button.click();
    for (const step of this.#owed) step.until = Date.now() + PATIENCE_MS;
  }

  /**
   * Do what a key of the search field does.
   * @param {KeyboardEvent} event
   * @param {string | undefined} q search that is shown
   */
  pressKey(event, q) {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (event.key === "Escape") {
      changeView({ q: null }, { replace: true });
      field.blur();
      byId("graph-canvas")?.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const button = byId(event.shiftKey ? "graph-previous" : "graph-next");
      if (field.value === (q ?? "") && button) button.click();
      else this.#wanted = field.value;
    }
  }
}
