/* Renders a node's name in the grid. */

import { element } from "../base/dom.mjs";
import { splitName } from "./columns.mjs";

/**
 * A cell with a name: a long one loses of its middle what has no room. The whole name lies unseen above
 * it, for
 * screen readers, pointers and tests.
 *
 * AG Grid knows its own renderers by `getGui`; it takes any other function for a React component.
 */
export class NameCell {
  #box = document.createElement("span");

  /** @param {{ value: unknown }} params */
  init({ value }) {
    const name = String(value ?? "");
    const parts = splitName(name);
    if (!parts) {
      this.#box.textContent = name;
      return;
    }
    this.#box.className = "cs-ends";
    this.#box.append(
      element("span", { "aria-hidden": "true", "data-head": parts[0], "data-tail": parts[1] }),
      element("span", { class: "cs-ends-whole" }, name),
    );
  }

  getGui() {
    return this.#box;
  }

  /** Whether the cell was updated in place; the grid makes a new one. */
  refresh() {
    return false;
  }
}
