/** The command palette (Ctrl+K): jumps to pages, jobs, runs, ranks and nodes, and does what the bar does. */

import { byId, element, targetOf } from "../base/dom.mjs";
import { changeView, goTo, readView } from "../base/view.mjs";
import { jumpTo } from "./jumps.mjs";

/** @import { Item } from "./jumps.mjs" */

const TYPING_MS = 120;
/** What the bar does, by its buttons. @type {Item[]} */
const ACTIONS = [
  action("Change the theme", "system, light, dark", "theme-toggle"),
  action("Save a report", "export this run, or this comparison, as HTML", "report"),
  action("Share this view", "copy the link", "share"),
];

class Palette {
  /** @type {Item[]} */
  #items = [];
  #active = 0;
  #requests = 0;
  #timer = 0;
  /** The words the list answers. @type {string | null} */
  #answered = null;
  /** Whether Enter was pressed before the list was there. */
  #isEntered = false;

  constructor() {
    this.input = element("input", {
      type: "text", placeholder: "Page, job, run, rank, node name or id", autocomplete: "off",
      spellcheck: "false", role: "combobox", "aria-label": "Jump to", "aria-expanded": "true",
      "aria-controls": "palette-list", "aria-autocomplete": "list",
    });
    this.list = element("ul", { id: "palette-list", role: "listbox", "aria-label": "Found" });
    this.dialog = element("dialog", { class: "cs-palette", "aria-label": "Jump to" }, this.input, this.list);
    document.body.append(this.dialog);
    this.input.addEventListener("input", () => {
      this.#isEntered = false;
      window.clearTimeout(this.#timer);
      this.#timer = window.setTimeout(() => this.#ask(), TYPING_MS);
    });
    this.dialog.addEventListener("keydown", (event) => this.#handleKey(event));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
      const row = targetOf(event, "[role=option]");
      if (row) this.#choose(this.#items[Number(row.dataset.at)]);
    });
  }

  toggle() {
    if (this.dialog.open) {
      this.dialog.close();
      return;
    }
    this.input.value = "";
    this.#answered = null;
    this.#isEntered = false;
    this.#items = [];
    this.list.replaceChildren();
    this.dialog.showModal();
    void this.#ask();
  }

  async #ask() {
    this.#requests += 1;
    const number = this.#requests, words = this.input.value;
    window.clearTimeout(this.#timer);
    /** @type {Item[]} */
    let items = [];
    let nothing = "No matches.";
    try {
      const query = new URLSearchParams({ q: words, job: readView().job ?? "" });
      const answer = await fetch(`/api/palette?${query}`);
      if (!answer.ok) throw new Error(`The studio answered with ${answer.status}.`);
      items = [...await answer.json(), ...actionsFor(words)];
    } catch {
      nothing = "The studio does not answer.";
    }
    if (number === this.#requests) this.#show(words, items, nothing);
  }

  /** Choose what was typed, also where its list is still to come. */
  #enter() {
    if (this.input.value === this.#answered) {
      this.#choose(this.#items[this.#active]);
      return;
    }
    this.#isEntered = true;
    void this.#ask();
  }

  /**
   * @param {string} words
   * @param {Item[]} items
   * @param {string} nothing
   */
  #show(words, items, nothing) {
    if (!this.dialog.open) return;
    this.#items = items;
    this.#answered = words;
    this.list.replaceChildren(...items.map(drawItem));
    if (!items.length) this.list.append(element("li", { class: "cs-dim", text: nothing }));
    this.#point(0);
    if (this.#isEntered && words === this.input.value) this.#choose(items[0]);
  }

  /** @param {number} index of the item that Enter chooses */
  #point(index) {
    this.#active = Math.max(0, Math.min(index, this.#items.length - 1));
    if (!this.#items.length) {
      this.input.removeAttribute("aria-activedescendant");
      return;
    }
    for (const [place, row] of [...this.list.children].entries()) {
      row.setAttribute("aria-selected", String(place === this.#active));
    }
    this.list.children[this.#active]?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `palette-${this.#active}`);
  }

  /** @param {KeyboardEvent} event */
  #handleKey(event) {
    // Keys of the page below mean nothing here; Escape closes, as everywhere.
    event.stopPropagation();
    if (event.key === "ArrowDown") this.#point(this.#active + 1);
    else if (event.key === "ArrowUp") this.#point(this.#active - 1);
    else if (event.key === "Enter") this.#enter();
    else return;
    event.preventDefault();
  }

  /** @param {Item | undefined} item */
  #choose(item) {
    if (!item) return;
    this.dialog.close();
    if (item.press) {
      buttonOf(item)?.click();
      return;
    }
    const jump = jumpTo(item, window.location.pathname, readView());
    if ("patch" in jump) changeView(jump.patch);
    else goTo(jump.path, jump.view);
  }
}

/**
 * @param {string} title
 * @param {string} about
 * @param {string} press
 * @returns {Item}
 */
function action(title, about, press) {
  return { kind: "action", title, about, view: {}, press };
}

/**
 * Return the actions that can be done now and whose words begin with what is typed.
 *
 * @param {string} words
 */
function actionsFor(words) {
  const typed = words.trim().toLowerCase();
  if (!typed) return [];
  return ACTIONS.filter((item) => {
    const said = `${item.title} ${item.about}`.toLowerCase();
    return (said.startsWith(typed) || said.includes(` ${typed}`)) && buttonOf(item)?.disabled === false;
  });
}

/** @param {Item} item */
function buttonOf(item) {
  const found = byId(item.press ?? "");
  return found instanceof HTMLButtonElement ? found : null;
}

/**
 * @param {Item} item
 * @param {number} index
 */
function drawItem(item, index) {
  const parts = /** @type {const} */ (["kind", "title", "about"]).map((name) =>
    element("span", { class: `cs-palette-${name}`, text: item[name] }));
  return element("li", { id: `palette-${index}`, "data-at": index, role: "option" }, ...parts);
}

/** Open the palette by its key and its button from now on. */
export function watchPalette() {
  /** @type {Palette | null} */
  let palette = null;
  const toggle = () => {
    palette ??= new Palette();
    palette.toggle();
  };
  document.addEventListener("keydown", (event) => {
    const isKey = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (!isKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    event.stopPropagation();
    toggle();
  }, true);
  document.addEventListener("click", (event) => {
    if (targetOf(event, "#palette-open")) toggle();
  });
}
