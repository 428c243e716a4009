/**
 * Imports on the page: a card for each on Home, a floating box elsewhere. Text enters the page as text
 * only.
 */

import { element, setAttribute, setText, setVisible } from "../base/dom.mjs";
import { isPlainClick } from "../base/dom.mjs";
import { byName } from "./files.mjs";
import { PictureView } from "./picture.mjs";
import { prefix } from "./server.mjs";
import {
  BUSY, namesAsked, noteText, percent, restText, shareDone, sortedText, statusText, URGENT,
} from "./words.mjs";

/** @import { Card, Upload, Uploads } from "./uploads.mjs" */
/** @typedef {ReturnType<typeof makeBar>} Bar */

/** Files listed of an import; the rest is counted. */
const ROWS = 8;

/** @param {string} job */
export const jobAddress = (job) => `${prefix()}overview?job=${encodeURIComponent(job)}`;

/** @param {string} label */
function makeBar(label) {
  const fill = element("div", { class: "cs-up-fill" });
  const about = { role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" };
  return { root: element("div", { class: "cs-up-bar", ...about }, fill), fill };
}

/**
 * @param {Bar} bar
 * @param {number} value
 */
function fillBar({ root, fill }, value) {
  setAttribute(root, "aria-valuenow", String(value));
  fill.style.width = `${value}%`;
}

/**
 * @param {string} text
 * @param {() => void} onclick
 * @param {boolean} [isQuiet]
 */
function makeButton(text, onclick, isQuiet = false) {
  const look = isQuiet ? "cs-up-button cs-up-quiet" : "cs-up-button";
  return element("button", { type: "button", class: look, text, onclick });
}

/**
 * @param {string} text
 * @param {string} address
 * @param {(address: string) => void} visit
 */
function makeLink(text, address, visit) {
  const link = element("a", { class: "cs-up-link", text, href: address });
  link.addEventListener("click", (event) => {
    if (!isPlainClick(event)) return;
    event.preventDefault();
    visit(link.getAttribute("href") ?? address);
  });
  return link;
}

/** The row of a file. */
class FileRow {
  /**
   * @param {Uploads} uploads
   * @param {Card} card
   * @param {Upload} file
   */
  constructor(uploads, card, file) {
    this.name = element("span", { class: "cs-up-file", text: file.path, title: file.path });
    this.bar = makeBar(`Upload of ${file.path}`);
    this.percent = element("span", { class: "cs-up-percent" });
    this.note = element("span", { class: "cs-up-note" });
    this.error = element("span", { class: "cs-up-file-error" });
    this.again = makeButton("Try again", () => uploads.retryFile(file), true);
    this.cancel = makeButton("Cancel", () => void uploads.cancelFile(card, file), true);
    this.again.setAttribute("aria-label", `Try again: ${file.path}`);
    const { name, bar, note, again, cancel, error } = this;
    this.root = element(
      "li", { class: "cs-up-row" }, name, bar.root, this.percent, note, again, cancel, error,
    );
  }

  /**
   * @param {Card} card
   * @param {Upload} file
   */
  draw(card, file) {
    const share = percent(file.received, file.size), { status, error } = file;
    setAttribute(this.root, "data-status", status);
    fillBar(this.bar, share);
    const isDamaged = card.status === "done" && status === "failed";
    const isSorted = ["used", "left out"].includes(status) || isDamaged;
    setVisible(this.bar.root, !isSorted);
    setVisible(this.percent, !isSorted);
    setText(this.percent, status === "cancelled" ? "" : `${share} %`);
    setText(this.note, isDamaged ? "damaged" : noteText(file, performance.now()));
    setVisible(this.error, Boolean(error));
    setText(this.error, error ? `${error.message} ${error.hint ?? ""}` : "");
    const isOpen = card.status === "uploading" || card.status === "failed";
    setVisible(this.again, status === "failed" && card.mine && card.status === "uploading");
    setVisible(this.cancel, isOpen && !["done", "cancelled", "used"].includes(status));
    setText(this.cancel, status === "failed" ? "Leave out" : "Cancel");
    setAttribute(this.cancel, "aria-label", `${this.cancel.textContent}: ${file.path}`);
  }
}

/** The card of an import. */
export class CardView {
  /** @type {Map<Upload, FileRow>} */
  #rows = new Map();

  /**
   * @param {Uploads} uploads
   * @param {Card} card
   * @param {(address: string) => void} visit
   */
  constructor(uploads, card, visit) {
    this.uploads = uploads;
    this.name = element("strong", { class: "cs-up-name" });
    this.status = element("span", { class: "cs-up-status" });
    this.bar = makeBar(`Progress of ${card.name}`);
    this.picture = new PictureView();
    this.sorted = element("p", { class: "cs-up-more" });
    this.files = element("ul", { class: "cs-up-files" });
    this.more = element("p", { class: "cs-up-more" });
    this.error = element("p", { class: "cs-up-error" });
    this.hint = element("p", { class: "cs-up-hint" });
    this.warnings = element("ul", { class: "cs-up-warnings" });
    this.questions = element("form", { class: "cs-up-ranks" });
    this.open = makeLink("Open job", "#", visit);
    this.again = makeButton("Read again", () => void uploads.start(card));
    this.cancel = makeButton("Cancel all", () => void uploads.dismiss(card), true);
    this.questions.addEventListener("submit", (event) => {
      event.preventDefault();
      void uploads.start(card, readAnswers(this.questions, namesAsked(card, "npus_for").length > 0));
    });
    const actions = element("div", { class: "cs-up-actions" }, this.open, this.again, this.cancel);
    this.root = element(
      "section", { class: "cs-up-card", "data-import": card.id },
      element("div", { class: "cs-up-head" }, this.name, this.status, actions),
      this.bar.root, this.error, this.hint, this.warnings, this.questions, this.picture.root, this.sorted,
      this.files, this.more,
    );
  }

  /** @param {Card} card */
  draw(card) {
    const isBusy = BUSY.has(card.status), { error } = card;
    setAttribute(this.root, "data-status", card.status);
    setAttribute(this.root, "aria-label", `Import of ${card.name}`);
    setText(this.name, card.name);
    setText(this.status, statusText(card, performance.now()));
    fillBar(this.bar, shareDone(card));
    setAttribute(this.bar.root, "aria-label", `Progress of ${card.name}`);
    const isCutOff = card.status === "interrupted" && card.received < card.size;
    setVisible(this.bar.root, isBusy || isCutOff);
    setVisible(this.error, Boolean(error));
    setText(this.error, error?.message ?? "");
    setVisible(this.hint, Boolean(error?.hint));
    setText(this.hint, error?.hint ?? "");
    this.#drawWarnings(card.warnings);
    setVisible(this.open, card.status === "done");
    if (card.job) setAttribute(this.open, "href", jobAddress(card.job));
    setAttribute(this.open, "aria-label", `Open job ${card.name}`);
    setVisible(this.again, isReadable(card));
    setVisible(this.cancel, !card.cancelling);
    const isUploading = card.status === "uploading" && card.mine;
    setText(this.cancel, isUploading ? "Cancel all" : isBusy ? "Cancel" : "Dismiss");
    setAttribute(this.cancel, "aria-label", `${this.cancel.textContent}: ${card.name}`);
    drawQuestions(this.questions, card);
    this.picture.draw((card.status === "reading" && card.progress?.picture) || null);
    this.#drawFiles(card);
  }

  /** @param {string[]} texts */
  #drawWarnings(texts) {
    setVisible(this.warnings, texts.length > 0);
    if (this.warnings.children.length === texts.length) return;
    this.warnings.replaceChildren(...texts.map((text) => element("li", { text })));
  }

  /** @param {Card} card */
  #drawFiles(card) {
    const isUploading = card.mine && card.status === "uploading";
    const isReading = card.status === "reading";
    const isListed = (/** @type {Upload} */ file) => Boolean(file.error || (isReading && file.role));
    const listed = isUploading ? card.files : card.files.filter(isListed);
    setVisible(this.sorted, (isReading || card.status === "done") && card.used !== null);
    setText(this.sorted, sortedText(card));
    const urgent = URGENT.flatMap((status) => listed.filter((file) => file.status === status));
    const shown = new Set(urgent.slice(0, ROWS));
    for (const [file, row] of this.#rows) {
      if (shown.has(file)) continue;
      row.root.remove();
      this.#rows.delete(file);
    }
    let next = this.files.firstElementChild;
    for (const file of listed.filter((each) => shown.has(each))) {
      const row = this.#rows.get(file) ?? new FileRow(this.uploads, card, file);
      this.#rows.set(file, row);
      if (row.root === next) next = next.nextElementSibling;
      else this.files.insertBefore(row.root, next);
      row.draw(card, file);
    }
    setVisible(this.files, shown.size > 0);
    const rest = listed.filter((file) => !shown.has(file));
    setVisible(this.more, rest.length > 0);
    if (rest.length) setText(this.more, restText(rest));
  }
}

/**
 * Whether an import can be read once more: all its files are there, and nothing else has to be said first.
 *
 * @param {Card} card
 */
function isReadable(card) {
  const isOver = ["failed", "cancelled", "interrupted"].includes(card.status);
  const isWhole = card.received >= card.size && !card.files.some((file) => file.status === "failed");
  const isAsking = namesAsked(card, "ranks_for").length > 0 || namesAsked(card, "npus_for").length > 0;
  return isOver && isWhole && !isAsking;
}

/**
 * Ask for what the files do not say: the rank of each, or how many NPUs run a workload.
 *
 * @param {HTMLFormElement} form
 * @param {Card} card
 */
function drawQuestions(form, card) {
  const npus = namesAsked(card, "npus_for"), names = npus.length ? npus : namesAsked(card, "ranks_for");
  setVisible(form, names.length > 0);
  const key = `${npus.length ? "npus" : "ranks"}\n${names.join("\n")}`;
  // Not drawn again while the user types.
  if (form.dataset.key === key) return;
  form.dataset.key = key;
  const rows = npus.length ? [makeNpusField(npus)] : makeRankFields(names);
  const text = npus.length ? "Read with this number" : "Read with these ranks";
  const submit = element("button", { type: "submit", class: "cs-up-button", text });
  form.replaceChildren(element("div", { class: "cs-up-rank-list" }, ...rows), submit);
}

/** @param {string[]} names of files */
function makeNpusField(names) {
  return makeField(`NPUs that run ${names.join(", ")}`, names[0] ?? "", { min: 1, max: 65536, value: 8 });
}

/** @param {string[]} names of files; their order is the first guess */
function makeRankFields(names) {
  const guess = [...names].sort(byName);
  return names.map((name) =>
    makeField(`Rank of ${name}`, name, { min: 0, max: 1000000, value: guess.indexOf(name) }));
}

/**
 * @param {string} label
 * @param {string} name
 * @param {{ min: number, max: number, value: number }} range
 */
function makeField(label, name, range) {
  const input = element("input", { type: "number", step: "1", required: true, "data-name": name, ...range });
  return element("label", {}, element("span", { text: label }), input);
}

/**
 * @param {HTMLFormElement} form
 * @param {boolean} isNpus
 * @returns {{ ranks?: Record<string, number>, npus?: number }}
 */
function readAnswers(form, isNpus) {
  const answers = Array.from(form.querySelectorAll("input"), (input) =>
    /** @type {[string, number]} */ ([input.dataset.name ?? "", Number(input.value)]));
  return isNpus ? { npus: answers[0]?.[1] ?? 0 } : { ranks: Object.fromEntries(answers) };
}

/** The floating box of the pages other than Home. */
export class FloatingBox {
  /**
   * @param {() => void} hide
   * @param {(address: string) => void} visit
   */
  constructor(hide, visit) {
    this.name = element("strong", { class: "cs-up-name" });
    this.status = element("span", { class: "cs-up-status" });
    this.bar = makeBar("Progress of the import");
    this.open = makeLink("Open job", "#", visit);
    this.home = makeLink("Show on Home", prefix(), visit);
    this.hide = makeButton("Hide", hide, true);
    const actions = element("div", { class: "cs-up-actions" }, this.open, this.home, this.hide);
    const about = { class: "cs-up-float", "aria-label": "Imports" };
    this.root = element("aside", about, this.name, this.status, this.bar.root, actions);
  }

  /** @param {Card[]} cards */
  draw(cards) {
    const busy = cards.filter((card) => BUSY.has(card.status)), main = busy[0] ?? cards.at(-1);
    setVisible(this.root, Boolean(main));
    if (!main) return;
    setText(this.name, busy.length > 1 ? `${main.name} and ${busy.length - 1} more` : main.name);
    setText(this.status, main.error?.message ?? statusText(main, performance.now()));
    setAttribute(this.root, "data-status", main.status);
    fillBar(this.bar, shareDone(main));
    setVisible(this.bar.root, BUSY.has(main.status));
    setVisible(this.open, main.status === "done");
    if (main.job) setAttribute(this.open, "href", jobAddress(main.job));
    setAttribute(this.home, "href", prefix());
    setVisible(this.hide, !busy.length);
  }
}
