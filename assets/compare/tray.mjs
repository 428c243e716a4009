/* A tray of runs chosen on any page: by <button data-compare="job/run" data-compare-name="…">, and the
   shown one by the button in the bar. */

import { onNavigation, propsOf } from "../base/dash.mjs";
import { byId, element, targetOf } from "../base/dom.mjs";
import { addressOf } from "../base/view.mjs";
import { LETTERS } from "./layout.mjs";

/** @typedef {[string, string]} Chosen job/run, and its name */

const KEY = "studio-compare";

/** @returns {Chosen[]} */
function readChosen() {
  try {
    const stored = JSON.parse(window.sessionStorage.getItem(KEY) || "[]");
    return Array.isArray(stored) ? stored.filter((entry) => Array.isArray(entry) && entry.length === 2) : [];
  } catch {
    return [];
  }
}

/** @param {Chosen[]} chosen */
function keep(chosen) {
  try {
    window.sessionStorage.setItem(KEY, JSON.stringify(chosen));
  } catch {
    /* Without storage the choice lasts as long as the page. */
  }
  showTray(chosen);
}

/** Where the chosen are compared. @param {Chosen[]} chosen */
export function comparisonAddress([[first], ...others]) {
  const [job, run] = first.split("/");
  return addressOf("/compare", { job, run, with: others.map(([value]) => value).join(",") });
}

/** @param {Chosen[]} chosen */
function showTray(chosen) {
  let bar = byId("compare-tray");
  if (!bar) {
    const about = { role: "region", "aria-label": "Chosen for comparison" };
    bar = element("div", { id: "compare-tray", class: "cs-compare-tray", ...about });
    document.body.append(bar);
  }
  bar.hidden = !chosen.length || window.location.pathname === "/compare";
  if (bar.hidden) return bar.replaceChildren();
  const chips = chosen.map(([value, name], at) => element("button", {
    class: "cs-compare-chip", title: "Remove: " + name, text: LETTERS[at] + " · " + name + " ×",
    onclick: () => keep(readChosen().filter(([other]) => other !== value)),
  }));
  const clear = () => keep([]);
  const go = chosen.length < 2
    ? element("span", { class: "cs-dim", text: "choose another to compare with" })
    : element("a", {
      class: "cs-button cs-compare-go", href: comparisonAddress(chosen), text: "Compare " + chosen.length,
      onclick: clear,
    });
  const empty = element("button", { class: "cs-button-quiet", text: "Clear", onclick: clear });
  bar.replaceChildren(...chips, go, empty);
}

/** The label of what is chosen in a select of the bar. @param {string} id */
function chosenLabel(id) {
  /** @type {{ value?: string, data?: { value: string, label: string }[] }} */
  const { value, data = [] } = propsOf(id) ?? {};
  return [value, data.find((entry) => entry.value === value)?.label];
}

/** The run that is shown, and what to call it. @returns {Chosen | null} */
function shownRun() {
  const [job, name] = chosenLabel("job-pick"), [run, label] = chosenLabel("run-pick");
  return job && run ? [`${job}/${run}`, [name ?? job, label ?? run].join(" · ")] : null;
}

/** @param {Chosen} wanted */
function choose(wanted) {
  const chosen = readChosen(), isNew = !chosen.some(([other]) => other === wanted[0]);
  if (isNew && chosen.length < LETTERS.length) chosen.push(wanted);
  keep(chosen);
}

/** Show the tray on every page, and listen to the buttons that fill it. */
export function watchTray() {
  document.addEventListener("click", (event) => {
    const button = targetOf(event, "[data-compare]"), value = button?.dataset.compare;
    if (button && value) choose([value, button.dataset.compareName || value]);
    const shown = targetOf(event, "#compare-shown") ? shownRun() : null;
    if (shown) choose(shown);
  });
  onNavigation(() => {
    window.setTimeout(() => showTray(readChosen()), 0);
  });
  showTray(readChosen());
}
