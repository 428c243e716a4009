/** Tips: the text of question marks, and the full name of a choice that has no room for it. */

import { element, targetOf } from "../base/dom.mjs";

const GAP = 6;

/**
 * One tip serves all question marks: a component for each would cost more than the page.
 * @type {HTMLElement | null}
 */
let tip = null;

/** @returns {HTMLElement} */
function makeTip() {
  // Screen readers read the label of the mark.
  const node = element("div", { class: "cs-tip", "aria-hidden": "true" });
  document.body.append(node);
  return node;
}

/** @param {Event} event */
function showTip(event) {
  const mark = targetOf(event, "[data-hint]");
  if (!mark) {
    hideTip();
    return;
  }
  tip ??= makeTip();
  tip.textContent = mark.getAttribute("data-hint");
  tip.hidden = false;
  const box = mark.getBoundingClientRect();
  const rightmost = window.innerWidth - tip.offsetWidth - GAP;
  const left = Math.min(Math.max(GAP, box.left + box.width / 2 - tip.offsetWidth / 2), rightmost);
  const above = box.top - tip.offsetHeight - GAP;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > GAP ? above : box.bottom + GAP}px`;
}

function hideTip() {
  if (tip) tip.hidden = true;
}

/** @param {Event} event */
function titleChoice(event) {
  const box = event.target;
  if (box instanceof HTMLInputElement && box.matches(".mantine-Select-input")) {
    box.title = box.scrollWidth > box.clientWidth ? box.value : "";
  } else if (box instanceof HTMLSelectElement) {
    box.title = box.selectedOptions[0]?.textContent ?? "";
  }
}

/** Show tips from now on. */
export function watchHints() {
  for (const name of ["mouseover", "focusin", "click"]) document.addEventListener(name, showTip);
  document.addEventListener("scroll", hideTip, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });
  document.addEventListener("pointerover", titleChoice);
}
