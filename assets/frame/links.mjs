/**
 * Links that Dash does not follow: those of static parts, and those of the navigation.
 *
 * `<a data-view='{"rank":3}'>` changes the view in place; `<a data-link href="/graph?job=...">` visits
 * another page. With a modifier the browser opens either as any link.
 */

import { isPlainClick, targetOf } from "../base/dom.mjs";
import { addressOf, changeView, readView, visit } from "../base/view.mjs";
import { pageAddress } from "./jumps.mjs";

/** @import { View } from "../base/view.mjs" */

/** @param {Element} target @returns {import("../base/view.mjs").Patch} */
const patchOf = (target) => JSON.parse(target.getAttribute("data-view") ?? "{}");

/**
 * Where a link of the navigation leads by now: the address may have changed since it was pointed there.
 *
 * @param {HTMLAnchorElement} target
 */
const navAddress = (target) => pageAddress(target.pathname, readView());

/**
 * Have the links of the navigation keep job, run and selection. Dash is not asked to: it would draw each
 * anew.
 *
 * @param {View} view
 */
export function pointNavigation(view) {
  for (const link of document.querySelectorAll("a.cs-nav")) {
    if (link instanceof HTMLAnchorElement) link.setAttribute("href", pageAddress(link.pathname, view));
  }
}

/** Follow links from now on. */
export function watchLinks() {
  document.addEventListener("click", (event) => {
    const target = targetOf(event, "[data-view]");
    // With Alt a browser would save what the link leads to, which is no file.
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    event.stopPropagation();
    changeView(patchOf(target));
  }, true);
  document.addEventListener("click", (event) => {
    const target = targetOf(event, "a[data-link]");
    if (!target || !isPlainClick(event)) return;
    event.preventDefault();
    visit(target.getAttribute("href") ?? "/");
  });
  document.addEventListener("click", (event) => {
    const target = targetOf(event, "a.cs-nav");
    if (!(target instanceof HTMLAnchorElement) || !isPlainClick(event)) return;
    event.preventDefault();
    event.stopPropagation();
    visit(navAddress(target));
  }, true);
  // Opened in a tab of its own it shows the view as it is now, not as it was when the link was drawn.
  document.addEventListener("pointerdown", (event) => {
    const target = targetOf(event, "a[data-view], a.cs-nav");
    if (!(target instanceof HTMLAnchorElement)) return;
    const address = target.matches("a.cs-nav")
      ? navAddress(target)
      : addressOf(window.location.pathname, { ...readView(), ...patchOf(target) });
    target.setAttribute("href", address);
  }, true);
}
