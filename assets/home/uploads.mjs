/** Imports: those this tab uploads, those the server reads, and those other tabs work on. */

import { plural } from "../base/format.mjs";
import { byName, isWanted, keepApart } from "./files.mjs";
import { Sender } from "./sending.mjs";
import { ask, pause } from "./server.mjs";
import { BUSY, describeLost } from "./words.mjs";

/** @import { Picked } from "./files.mjs" */
/** @import { Failure, FileInfo, ImportInfo, Progress, Waiter } from "./server.mjs" */

/**
 * A file of an import: what the server says, and what this tab does with it.
 * @typedef {FileInfo & Waiter & { tries: number, file?: File, busy?: boolean, alone?: boolean,
 *   since?: number, sinceReceived?: number, abort?: AbortController }} Upload
 */

/**
 * An import. `mine` ones are uploaded by this tab; `fresh` ones appear in the floating box.
 * @typedef {Waiter & { id: string, name: string, status: string, mine: boolean, fresh: boolean, size: number,
 *   received: number, chunk: number, created: number, files: Upload[], samples: [number, number][], job:
 * string,
 *   error: Failure | null, progress: Progress | null, warnings: string[], idle: number | null,
 *   used: number | null, leftOut: number | null, isListed?: boolean,
 *   starting?: boolean, cancelling?: boolean, lost?: boolean, hiddenInBox?: boolean }} Card
 */

/** What happens to imports. @typedef {{ redraw: () => void, say: (text: string) => void,
 *   removed: (card: Card) => void, finished: (card: Card) => void }} Listener */

const POLL_MS = 500;
/** Imports of other tabs are asked for at every fourth poll. */
const RARELY = 4;
const MOST_LOST = 5;
const READING = new Set(["queued", "reading"]);

/** @type {Omit<Card, "id" | "name" | "status">} */
const EMPTY = {
  mine: false, fresh: false, size: 0, received: 0, chunk: 0, created: 0, files: [], samples: [], job: "",
  error: null, progress: null, warnings: [], idle: null, used: null, leftOut: null,
};

export class Uploads {
  /** By id. @type {Map<string, Card>} */
  cards = new Map();
  /** Names imports the server has not named yet. */
  #pending = 0;
  #timer = 0;
  #tick = 0;
  /** Polls in a row without a connection. */
  #lost = 0;

  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    const { redraw, say } = listener;
    const completed = (/** @type {Card} */ card) => void this.#startIfComplete(card);
    this.sender = new Sender(this.cards, { redraw, say, completed });
  }

  /**
   * Import files.
   *
   * @param {Picked[]} picked
   * @param {string[]} lost paths of what cannot be read
   */
  async upload(picked, lost = []) {
    const wanted = picked.filter(({ path }) => isWanted(path));
    const files = keepApart(wanted).sort((a, b) => byName(a.path, b.path));
    const { redraw, say } = this.listener;
    const without = describeLost(lost);
    if (!files.length) {
      say(without || "There are no files in the selection.");
      return;
    }
    this.#pending += 1;
    /** @type {Card} */
    const card = {
      ...EMPTY, id: `pending-${this.#pending}`, status: "announcing", created: Infinity, samples: [],
      name: files[0]?.path.split("/")[0] ?? "", mine: true, fresh: true,
      size: files.reduce((sum, { file }) => sum + file.size, 0),
    };
    this.cards.set(card.id, card);
    say(`Uploading ${plural(files.length, "file")}.${without && ` ${without}`}`);
    redraw();
    const list = files.map(({ path, file }) => ({ path, size: file.size, modified: file.lastModified }));
    const answer = await this.#ask(card, () => !this.cards.has(card.id), "POST", "", { files: list });
    if (!answer || !this.cards.has(card.id)) {
      if (answer?.status === 201) await this.#ask({}, () => false, "DELETE", `/${answer.body.id}`);
      return;
    }
    if (answer.status !== 201) {
      Object.assign(card, { status: "refused", error: answer.body.error });
      say(`${card.name} was refused: ${answer.body.error.message}`);
      redraw();
      return;
    }
    this.#remove(card);
    this.#adopt(answer.body, new Map(files.map(({ path, file }) => [path, file])));
  }

  /**
   * Read an import whose files are there.
   *
   * @param {Card} card
   * @param {{ ranks?: Record<string, number>, npus?: number }} [entered] what the user said of the files
   */
  async start(card, entered = {}) {
    card.starting = true;
    const isGone = () => !this.cards.has(card.id);
    const answer = await this.#ask(card, isGone, "POST", `/${card.id}/start`, entered);
    card.starting = false;
    if (!answer) return;
    card.fresh = true;
    if (answer.status === 202) this.#place(answer.body);
    else {
      Object.assign(card, { status: "failed", error: answer.body.error });
      this.listener.say(answer.body.error.message);
      this.listener.redraw();
    }
    this.poll();
  }

  /**
   * @param {Card} card
   * @param {Upload} file
   */
  async cancelFile(card, file) {
    file.status = "cancelled";
    file.abort?.abort();
    file.wake?.();
    this.listener.redraw();
    await this.#ask(file, () => !this.cards.has(card.id), "DELETE", `/${card.id}/files/${file.id}`);
    if (card.mine && card.status === "uploading") void this.#startIfComplete(card);
    else void this.#refresh(card, true);
  }

  /** @param {Upload} file */
  retryFile(file) {
    Object.assign(file, { status: "waiting", error: null, tries: 0 });
    this.sender.pump();
    this.listener.redraw();
  }

  /**
   * Cancel an import that is read, delete any other.
   *
   * @param {Card} card
   */
  async dismiss(card) {
    const isRead = READING.has(card.status);
    if (isRead) card.cancelling = true;
    else this.#remove(card);
    this.listener.say(`${card.name}: ${BUSY.has(card.status) ? "cancelled" : "dismissed"}.`);
    for (const file of card.files) {
      if (file.status === "uploading" && !isRead) file.status = "cancelled";
      if (!isRead) file.abort?.abort();
      file.wake?.();
    }
    card.wake?.();
    this.listener.redraw();
    if (card.id.startsWith("pending-")) return;
    const answer = await this.#ask(card, () => false, "DELETE", `/${card.id}`);
    if (answer?.status === 200 && answer.body.status !== "gone") this.#place(answer.body);
    else if (answer && answer.status >= 400 && answer.status !== 404) {
      // Another studio works on it: it is still there.
      card.error = answer.body.error;
      this.cards.set(card.id, card);
      this.listener.redraw();
    }
    this.poll();
  }

  /** Keep asking while anything is read; uploads of other tabs are asked for less often. */
  poll() {
    if (this.#timer || !this.#watched().length) return;
    this.#timer = window.setTimeout(async () => {
      this.#tick += 1;
      const now = this.#watched().filter((card) => READING.has(card.status) || this.#tick % RARELY === 0);
      const answered = await Promise.all(now.map((card) => this.#refresh(card, false)));
      this.#lost = answered.every(Boolean) ? 0 : Math.min(this.#lost + 1, MOST_LOST);
      this.#timer = 0;
      this.poll();
    }, POLL_MS * 2 ** this.#lost);
  }

  /** Show the imports the server knows. */
  async recall() {
    const answer = await ask("GET", "").catch(() => null);
    // The page has loaded, so the server answered a moment ago; the next drop or reload tries again.
    if (answer?.status !== 200) return;
    for (const info of answer.body.imports) {
      if (this.cards.has(info.id) || info.status === "done") continue;
      const card = this.#place(info);
      card.fresh = READING.has(card.status);
      if (card.status === "failed") void this.#refresh(card, true);
    }
    this.poll();
  }

  /**
   * Ask until there is an answer, or until it is no longer wanted; null then.
   *
   * @param {Waiter} waiter
   * @param {() => boolean} isUnwanted
   * @param {string} method
   * @param {string} path
   * @param {object} [body]
   */
  async #ask(waiter, isUnwanted, method, path, body) {
    for (let attempt = 0; !isUnwanted(); attempt++) {
      const answer = await ask(method, path, body).catch(() => null);
      if (answer) return answer;
      if (!isUnwanted()) await pause(waiter, attempt, this.listener.redraw);
    }
    return null;
  }

  /**
   * Upload the files of an import the server knows.
   *
   * @param {ImportInfo} info
   * @param {Map<string, File>} fileOf by path
   */
  #adopt(info, fileOf) {
    const known = this.cards.get(info.id);
    const isRunning = Boolean(known?.mine && known.status === "uploading");
    const card = known && isRunning ? known : this.#place(info);
    Object.assign(card, { mine: true, fresh: true, chunk: info.chunk_bytes });
    for (const [index, file] of card.files.entries()) {
      // Dropped once more while it is uploaded: what was cancelled or has failed is wanted again.
      if (isRunning && ["cancelled", "failed"].includes(file.status)) {
        Object.assign(file, info.files?.[index], { tries: 0 });
      }
      if (!isRunning || file.status !== "uploading") file.file = fileOf.get(file.path);
    }
    this.sender.pump();
    void this.#startIfComplete(card);
    this.listener.redraw();
  }

  /**
   * Make or refresh a card.
   *
   * @param {ImportInfo} info
   * @returns {Card}
   */
  #place(info) {
    const { id, name, status, size, received, created, progress, job, error, warnings, idle_s: idle } = info;
    const known = this.cards.get(id), before = known?.status;
    const card = known ?? { ...EMPTY, id, name, status, samples: [] };
    Object.assign(card, { name, status, size, received, created, progress, job, error, warnings, idle });
    const { files_used: used, files_left_out: leftOut } = info;
    Object.assign(card, { used, leftOut });
    if (info.files) card.isListed = used !== null;
    if (info.files) card.files = info.files.map((file) => ({ ...file, tries: 0, retryAt: 0 }));
    if (!BUSY.has(status)) card.cancelling = false;
    this.cards.set(id, card);
    if (before && before !== status) this.#report(card);
    // Which files are used is known before any is read; polls do not ask for the files.
    if (status === "reading" && used !== null && !card.isListed) {
      card.isListed = true;
      void this.#refresh(card, true);
    }
    this.listener.redraw();
    return card;
  }

  /** @param {Card} card */
  #remove(card) {
    this.cards.delete(card.id);
    this.listener.removed(card);
  }

  /** @param {Card} card */
  async #startIfComplete(card) {
    const isOpen = card.files.some((file) => file.status !== "done" && file.status !== "cancelled");
    if (this.cards.get(card.id) !== card || !card.mine || card.status !== "uploading") return;
    if (isOpen || card.starting) return;
    if (card.files.every((file) => file.status === "cancelled")) await this.dismiss(card);
    else await this.start(card);
  }

  /** Imports to ask for: those that are read, and those that other tabs upload. */
  #watched() {
    const isWatched = (/** @type {Card} */ card) =>
      READING.has(card.status) || (card.status === "uploading" && !card.mine);
    return [...this.cards.values()].filter(isWatched);
  }

  /**
   * @param {Card} card
   * @param {boolean} isWithFiles
   * @returns {Promise<boolean>} whether there is a connection
   */
  async #refresh(card, isWithFiles) {
    const answer = await ask("GET", `/${card.id}?files=${isWithFiles ? 1 : 0}`).catch(() => null);
    card.lost = !answer;
    const isUploadedHere = card.mine && card.status === "uploading";
    if (answer?.status === 404) this.#remove(card);
    else if (answer?.status === 200 && this.cards.has(card.id) && !isUploadedHere) this.#place(answer.body);
    this.listener.redraw();
    return Boolean(answer);
  }

  /**
   * Say what has become of an import.
   *
   * @param {Card} card
   */
  #report(card) {
    const { say } = this.listener;
    if (card.status === "reading") say(`${card.name}: reading.`);
    if (card.status === "cancelled") say(`${card.name}: cancelled.`);
    if (card.status === "done") {
      // A card that stays tells what was left out.
      if (card.leftOut || card.warnings.length) void this.#refresh(card, true);
      this.listener.finished(card);
    }
    if (card.status === "failed") {
      say(`${card.name}: ${card.error?.message ?? "failed."}`);
      void this.#refresh(card, true);
    }
  }
}
