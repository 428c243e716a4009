/**
 * Static parts of a page: studio/pages/base/still.py describes them in the attribute `data-still`, as
 * [name, attributes, parts ...]. Here they become elements and text; nothing in them is read as markup.
 */

/** @typedef {string | [string, Record<string, string | Record<string, string>>, ...unknown[]]} Part */

/** The description each host shows. @type {WeakMap<Element, string>} */
const shown = new WeakMap();

/**
 * @param {Part} part
 * @returns {Node}
 */
function make(part) {
  if (typeof part === "string") return document.createTextNode(part);
  const [name, attributes, ...children] = part;
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "string") node.setAttribute(key, value);
    else for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
  }
  node.append(...children.map((child) => make(/** @type {Part} */ (child))));
  return node;
}

/**
 * Foldable sections by title, without its numbers: the same section comes again with other content.
 *
 * @param {Element} host
 * @returns {[string, HTMLDetailsElement][]}
 */
function folds(host) {
  return Array.from(host.querySelectorAll("details"), (section) => {
    const title = (section.querySelector("summary") ?? section).textContent ?? "";
    return [title.replace(/[\d.,]+/g, ""), section];
  });
}

/**
 * What was focused or pressed last, if it is to keep the focus where it is drawn anew.
 *
 * @type {Element | null}
 */
let held = null;

/** @param {Event} event */
function noteHeld(event) {
  held = event.target instanceof Element ? event.target.closest("[data-held]") : null;
}

/**
 * Give the focus of a button that was drawn anew by what it did to the one that took its place.
 *
 * @param {Element} host
 */
function focusAgain(host) {
  if (!held || held.isConnected) return;
  const again = host.querySelector(`[data-held="${CSS.escape(held.getAttribute("data-held") ?? "")}"]`);
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** @param {Element} host */
function fill(host) {
  const text = host.getAttribute("data-still");
  if (!text || shown.get(host) === text) return;
  shown.set(host, text);
  const open = new Map(folds(host).map(([title, section]) => [title, section.open]));
  host.replaceChildren(make(JSON.parse(text)));
  focusAgain(host);
  for (const [title, section] of folds(host)) section.open = open.get(title) ?? section.open;
}

/** Fill static parts from now on: right after React has put them down, before they are painted. */
export function watchStatic() {
  document.addEventListener("pointerdown", noteHeld, true);
  document.addEventListener("focusin", noteHeld);
  document.querySelectorAll("[data-still]").forEach(fill);
  const observer = new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "attributes" && change.target instanceof Element) fill(change.target);
      for (const node of change.addedNodes) {
        if (!(node instanceof Element)) continue;
        if (node.hasAttribute("data-still")) fill(node);
        else node.querySelectorAll("[data-still]").forEach(fill);
      }
    }
  });
  const scope = { childList: true, subtree: true, attributes: true, attributeFilter: ["data-still"] };
  observer.observe(document.documentElement, scope);
}
