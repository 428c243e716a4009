/** Elements: look them up, make them, and write into them only when something changes. */

/** @typedef {string | number | boolean | null | undefined} Value */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} id
 * @returns {HTMLElement | null}
 */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * Write a text, if it is another: screen readers and selections notice every write.
 *
 * @param {Element | string | null | undefined} node the element or its id
 * @param {string} text
 */
export function setText(node, text) {
  const target = typeof node === "string" ? byId(node) : node;
  if (target && target.textContent !== text) target.textContent = text;
}

/**
 * Write an attribute, if it is another.
 *
 * @param {Element} node
 * @param {string} name
 * @param {string} value
 */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Show or hide an element.
 *
 * @param {HTMLElement | null | undefined} node
 * @param {boolean} isVisible
 */
export function setVisible(node, isVisible) {
  if (node && node.hidden === isVisible) node.hidden = !isVisible;
}

/**
 * Make an element. Attributes that are null, undefined or false are left out; true is an empty one.
 * `text` is its text and `onclick` its listener.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{ text?: string, onclick?: (event: Event) => void, [name: string]: unknown }} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, { text, onclick, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (onclick) node.addEventListener("click", onclick);
  setAttributes(node, /** @type {Record<string, Value>} */ (attributes));
  node.append(...children);
  return node;
}

/**
 * Make an element of a drawing.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, Value>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svgElement(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

/**
 * @param {Element} node
 * @param {Record<string, Value>} attributes
 */
function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * The nearest element around the target of an event that matches a selector.
 *
 * @param {Event} event
 * @param {string} selector
 * @returns {HTMLElement | null}
 */
export function targetOf(event, selector) {
  return event.target instanceof Element ? event.target.closest(selector) : null;
}

/**
 * Whether a click is a plain one: with a modifier or another button the browser opens a link elsewhere.
 *
 * @param {MouseEvent} event
 * @returns {boolean}
 */
export function isPlainClick(event) {
  return event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
}

/**
 * A colour or size of the stylesheets, such as "--cs-panel".
 *
 * @param {string} name
 * @returns {string}
 */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
