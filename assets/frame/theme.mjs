/** Light, dark, or as the system has it: chosen by the button in the header, kept by the browser. */

import { setProps } from "../base/dash.mjs";

/** @typedef {"auto" | "light" | "dark"} Choice */

/** Mantine reads the same key. */
const KEY = "mantine-color-scheme-value";

/** @type {Record<Choice, { name: string, mark: string, next: Choice }>} */
const CHOICES = {
  auto: { name: "Theme: system", mark: "◐", next: "light" },
  light: { name: "Theme: light", mark: "○", next: "dark" },
  dark: { name: "Theme: dark", mark: "●", next: "auto" },
};

const system = window.matchMedia("(prefers-color-scheme: dark)");

/** Clicks on the button that are carried out: Dash reports two clicks in a row at once. */
let counted = 0;

/** @returns {Choice} */
function readChoice() {
  try {
    const value = window.localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto";
  }
}

/** @param {Choice} choice */
function keepChoice(choice) {
  try {
    if (choice === "auto") window.localStorage.removeItem(KEY);
    else window.localStorage.setItem(KEY, choice);
  } catch {
    // A private window without storage: the choice lasts until the page is left.
  }
}

/**
 * @param {Choice} choice
 * @returns {string} the scheme that is shown
 */
function applyTheme(choice) {
  const scheme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
  document.documentElement.setAttribute("data-mantine-color-scheme", scheme);
  return scheme;
}

/**
 * Go to the next theme at every click; show the kept one before the first.
 *
 * @param {number | null} clicks
 * @returns {string[]} the scheme, then mark, title and label of the button
 */
export function toggleTheme(clicks) {
  let choice = readChoice();
  for (; counted < (clicks ?? 0); counted++) choice = CHOICES[choice].next;
  if (clicks) keepChoice(choice);
  const { mark, name } = CHOICES[choice];
  return [applyTheme(choice), mark, name, name];
}

/** Follow the system while no theme is chosen. */
export function followSystemTheme() {
  system.addEventListener("change", () => {
    if (readChoice() === "auto") setProps("theme", { data: applyTheme("auto") });
  });
}
