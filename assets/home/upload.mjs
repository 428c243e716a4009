/**
 * Uploads: drop or pick traces on any page, see and cancel them, go on after a lost connection or a restart.
 *
 * A page may hold #home-drop, #home-pick-files, #home-pick-folder and #home-uploads. Dash renders and
 * removes them as it likes; the uploads live on here. A page with a [data-takes-drops] takes drops itself.
 */

import { byId, element, setAttribute, setVisible, targetOf } from "../base/dom.mjs";
import { CardView, FloatingBox, jobAddress } from "./cards.mjs";
import { filesOfDrop, filesOfInput } from "./files.mjs";
import { Uploads } from "./uploads.mjs";
import { BUSY } from "./words.mjs";

/** @import { Card } from "./uploads.mjs" */

/** At most ten drawings a second; speeds and countdowns move on without any event. */
const DRAW_MS = 100, MOVE_MS = 400;
const OPENS = "Drop traces to open them";

/** What takes dropped files on this page: it has the words of the overlay, and a file input inside. */
const taker = () => document.querySelector("[data-takes-drops]");

/**
 * Wait for the file input of what takes drops: Dash loads the component that has it when its page is opened.
 *
 * @param {Element} place
 * @returns {Promise<HTMLInputElement | null>} null once the page is left before it is there
 */
function waitForInput(place) {
  return new Promise((resolve) => {
    const look = () => {
      /** @type {HTMLInputElement | null} */
      const input = place.querySelector("input[type=file]");
      if (!input && place.isConnected) return;
      changes.disconnect();
      resolve(input);
    };
    const changes = new MutationObserver(look);
    changes.observe(document.body, { childList: true, subtree: true });
    look();
  });
}

/**
 * Give dropped files to what takes them on this page, as if they were chosen there.
 *
 * @param {Element} place
 * @param {DataTransfer} dropped
 */
async function handOver(place, dropped) {
  // The browser takes the files back when its event ends.
  const carried = new DataTransfer();
  for (const file of dropped.files) carried.items.add(file);
  const input = await waitForInput(place);
  if (!input) return;
  input.files = carried.files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

/**
 * What the uploads do to the studio around them.
 * @typedef {{ visit: (address: string) => void, imported: (job: string) => void }} Host
 */

class UploadPage {
  /** @type {Map<Card, CardView>} */
  #views = new Map();
  /** @type {FloatingBox | null} */
  #box = null;
  #isPlanned = false;
  #drawn = 0;

  /** @param {Host} host */
  constructor(host) {
    this.host = host;
    this.live = element("div", { class: "cs-up-live", role: "status", "aria-live": "polite" });
    this.words = element("div", { text: OPENS });
    const looks = { class: "cs-up-overlay", hidden: true, "aria-hidden": "true" };
    this.overlay = element("div", looks, this.words);
    document.body.append(this.live, this.overlay);
    this.uploads = new Uploads({
      redraw: () => this.redraw(),
      say: (text) => this.say(text),
      removed: (card) => this.#forget(card),
      finished: (card) => this.#finish(card),
    });
    this.#watchButtons();
    this.#watchDrops();
    this.#watchPage();
    void this.uploads.recall();
  }

  /** @param {string} text for screen readers */
  say(text) {
    this.live.textContent = text;
  }

  /** Draw soon. */
  redraw() {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    window.setTimeout(() => {
      this.#isPlanned = false;
      this.#drawn = performance.now();
      this.#draw();
      const isMoving = [...this.uploads.cards.values()].some((card) => card.mine && BUSY.has(card.status));
      if (isMoving) window.setTimeout(() => this.redraw(), MOVE_MS);
    }, Math.max(0, DRAW_MS - (performance.now() - this.#drawn)));
  }

  #draw() {
    const home = byId("home-uploads"), cards = [...this.uploads.cards.values()];
    if (home) this.#drawCards(home, cards);
    const fresh = home ? [] : cards.filter((card) => card.fresh && !card.hiddenInBox);
    if (fresh.length) this.#box ??= this.#makeBox();
    this.#box?.draw(fresh);
  }

  /**
   * @param {HTMLElement} home
   * @param {Card[]} cards
   */
  #drawCards(home, cards) {
    cards.sort((a, b) => (b.created || Infinity) - (a.created || Infinity) || 0);
    let next = home.firstElementChild;
    for (const card of cards) {
      const view = this.#views.get(card) ?? new CardView(this.uploads, card, this.host.visit);
      this.#views.set(card, view);
      view.draw(card);
      if (view.root === next) next = next.nextElementSibling;
      else home.insertBefore(view.root, next);
    }
  }

  #makeBox() {
    const box = new FloatingBox(() => {
      for (const card of this.uploads.cards.values()) if (!BUSY.has(card.status)) card.hiddenInBox = true;
      this.redraw();
    }, this.host.visit);
    document.body.append(box.root);
    return box;
  }

  /** @param {Card} card */
  #forget(card) {
    this.#views.get(card)?.root.remove();
    this.#views.delete(card);
  }

  /** @param {Card} card */
  #finish(card) {
    this.say(`${card.name} is open.`);
    this.host.imported(card.job);
    const isBusy = [...this.uploads.cards.values()].some((other) => other.fresh && BUSY.has(other.status));
    if (!card.mine || isBusy || card.warnings?.length || !byId("home-drop")) return;
    // The job itself is in view now; a box that says so would only cover it.
    card.hiddenInBox = true;
    this.host.visit(jobAddress(card.job));
  }

  #watchButtons() {
    const files = this.#makeInput("chakra-upload-files", "Choose trace files", false);
    const folder = this.#makeInput("chakra-upload-folder", "Choose a folder of traces", true);
    document.addEventListener("click", (event) => {
      const isControl = targetOf(event, "a, button, input, label, #home-uploads");
      const isZone = targetOf(event, "#home-drop") && !isControl;
      if (targetOf(event, "#home-pick-folder")) folder.click();
      else if (isZone || targetOf(event, "#home-pick-files")) files.click();
    });
  }

  /**
   * @param {string} id
   * @param {string} label
   * @param {boolean} isFolder
   */
  #makeInput(id, label, isFolder) {
    const about = { type: "file", id, "aria-label": label, multiple: true, hidden: true, tabindex: "-1" };
    const input = element("input", about);
    input.webkitdirectory = isFolder;
    input.addEventListener("change", () => {
      const picked = filesOfInput(input);
      // So that choosing the same files again counts as a choice.
      input.value = "";
      if (picked.length) void this.uploads.upload(picked);
    });
    document.body.append(input);
    return input;
  }

  #watchDrops() {
    /** @param {DragEvent} event */
    const carriesFiles = (event) => Boolean(event.dataTransfer?.types.includes("Files"));
    window.addEventListener("dragenter", (event) => {
      if (!carriesFiles(event)) return;
      this.words.textContent = taker()?.getAttribute("data-takes-drops") ?? OPENS;
      setVisible(this.overlay, true);
    });
    window.addEventListener("dragover", (event) => {
      if (!event.dataTransfer || !carriesFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      setVisible(this.overlay, true);
    });
    window.addEventListener("dragleave", (event) => {
      // Only the window's edge has nothing on the other side.
      if (!event.relatedTarget) setVisible(this.overlay, false);
    });
    window.addEventListener("drop", async (event) => {
      setVisible(this.overlay, false);
      if (!event.dataTransfer || !carriesFiles(event)) return;
      event.preventDefault();
      const place = taker();
      if (place) {
        void handOver(place, event.dataTransfer);
        return;
      }
      try {
        /** @type {string[]} */
        const lost = [];
        await this.uploads.upload(await filesOfDrop(event.dataTransfer, lost), lost);
      } catch (error) {
        this.say(`The dropped files cannot be read: ${error instanceof Error ? error.message : error}.`);
      }
    });
    window.addEventListener("beforeunload", (event) => {
      const cards = [...this.uploads.cards.values()];
      const isLosing = cards.some((card) => card.mine && ["announcing", "uploading"].includes(card.status));
      if (isLosing) event.preventDefault();
    });
  }

  /** Draw again whenever Dash has rendered the drop zone or the list. */
  #watchPage() {
    /** @type {(HTMLElement | null)[]} */
    let known = [];
    const look = () => {
      const zone = byId("home-drop"), list = byId("home-uploads");
      if (zone === known[0] && list === known[1]) return;
      known = [zone, list];
      if (zone) setAttribute(zone, "data-upload-ready", "true");
      this.redraw();
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    look();
  }
}

/**
 * Take uploads from now on.
 *
 * @param {Host} host
 * @returns {Uploads}
 */
export function startUploads(host) {
  return new UploadPage(host).uploads;
}
