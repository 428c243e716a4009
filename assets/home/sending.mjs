/** Sending files in chunks, small ones together, and again from where a lost connection left off. */

import { ask, pause } from "./server.mjs";

/** @import { Answer } from "./server.mjs" */
/** @import { Card, Upload } from "./uploads.mjs" */

const PARALLEL = 3;
const SMALL = 512 * 1024;
const TOGETHER = 50;
const FIRST_CHUNK = 1024 * 1024;
const SMALLEST_CHUNK = 256 * 1024;
/** A chunk of about half a second moves progress, loses little with a connection, and makes few requests. */
const FAST_MS = 400, SLOW_MS = 2000;
/** Answers that bring nothing on before there is a pause between them. */
const USELESS = 3;
const SERVER_ERRORS = 5;
/** Requests that will do later: time out, too many, and a server that is not ready. */
const PASSING = new Set([408, 429, 502, 503, 504]);

/** @param {Upload} file */
const isWaiting = (file) => file.file && !file.busy && ["waiting", "uploading"].includes(file.status);

/** @param {Upload} file */
const isSmall = (file) => file.size <= SMALL && !file.received && !file.alone;

/** @param {File | undefined} file */
async function isReadable(file) {
  try {
    await file?.slice(0, 1).arrayBuffer();
    return Boolean(file);
  } catch {
    return false;
  }
}

/**
 * Take the next files to send off a queue: one, or small ones up to the size of a chunk.
 *
 * @param {Upload[]} queue
 * @param {number} chunk bytes
 * @returns {Upload[]}
 */
export function takeNext(queue, chunk) {
  const first = queue.shift();
  if (!first) return [];
  const files = [first];
  let size = first.size;
  while (isSmall(first) && files.length < TOGETHER) {
    const next = queue[0];
    if (!next || !isSmall(next) || size + next.size > chunk) break;
    size += next.size;
    files.push(next);
    queue.shift();
  }
  return files;
}

export class Sender {
  #underWay = 0;

  /**
   * @param {Map<string, Card>} cards
   * @param {{ redraw: () => void, say: (text: string) => void, completed: (card: Card) => void }} listener
   */
  constructor(cards, listener) {
    this.cards = cards;
    this.listener = listener;
  }

  /** Send what waits, as much as may be under way at a time. */
  pump() {
    for (const card of this.cards.values()) {
      if (!card.mine || card.status !== "uploading") continue;
      const queue = card.files.filter(isWaiting);
      while (queue.length && this.#underWay < PARALLEL) {
        void this.#run(card, takeNext(queue, card.chunk));
      }
    }
  }

  /**
   * @param {Card} card
   * @param {Upload[]} files
   */
  async #run(card, files) {
    this.#underWay += 1;
    for (const file of files) file.busy = true;
    const [first] = files;
    if (files.length > 1) await this.#sendTogether(card, files);
    else if (first) await this.#send(card, first);
    for (const file of files) file.busy = false;
    this.#underWay -= 1;
    this.listener.completed(card);
    this.pump();
    this.listener.redraw();
  }

  /**
   * Send small files in one request: one each would take far longer than their bytes.
   *
   * @param {Card} card
   * @param {Upload[]} files
   */
  async #sendTogether(card, files) {
    const abort = new AbortController();
    for (const file of files) Object.assign(file, { status: "uploading", since: 0, abort });
    this.listener.redraw();
    const ids = files.map((file) => file.id).join(",");
    const body = new Blob(files.flatMap((file) => (file.file ? [file.file] : [])));
    const options = { signal: abort.signal };
    const answer = await ask("PUT", `/${card.id}/files?ids=${ids}`, body, options).catch(() => null);
    for (const file of files.filter((each) => each.status === "uploading")) {
      if (answer?.status === 200) Object.assign(file, { status: "done", received: file.size });
      // Each file finds out for itself what it was: the connection, the disk, or one that cannot be read.
      else Object.assign(file, { status: "waiting", alone: true });
    }
  }

  /**
   * @param {Card} card
   * @param {Upload} file
   */
  async #send(card, file) {
    let size = FIRST_CHUNK;
    const isOpen = () => file.status === "uploading" && card.status === "uploading";
    Object.assign(file, { status: "uploading", since: performance.now(), sinceReceived: file.received });
    while (file.received < file.size && isOpen()) {
      const began = performance.now();
      const answer = await this.#sendChunk(card, file, size);
      if (!answer) {
        if (!isOpen()) return;
        if (!(await isReadable(file.file))) {
          const hint = "It was changed, moved or deleted; drop it again.";
          this.#fail(file, `${file.path} can no longer be read.`, hint);
          return;
        }
        size = Math.max(SMALLEST_CHUNK, size / 2);
        await this.#pause(file);
        continue;
      }
      if (!(await this.#takeAnswer(file, answer))) return;
      const ms = performance.now() - began;
      if (ms < FAST_MS) size = Math.min(card.chunk, size * 2);
      else if (ms > SLOW_MS) size = Math.max(SMALLEST_CHUNK, size / 2);
      this.listener.redraw();
    }
    if (file.received >= file.size && file.status === "uploading") file.status = "done";
  }

  /**
   * @param {Card} card
   * @param {Upload} file
   * @param {number} size of the chunk, at most
   * @returns {Promise<Answer | null>} null where there is no connection, or the file cannot be read
   */
  async #sendChunk(card, file, size) {
    file.abort = new AbortController();
    try {
      const chunk = file.file?.slice(file.received, file.received + Math.min(size, card.chunk));
      const path = `/${card.id}/files/${file.id}?offset=${file.received}`;
      return await ask("PUT", path, chunk, { signal: file.abort.signal });
    } catch {
      return null;
    }
  }

  /**
   * Note the answer to a chunk.
   *
   * @param {Upload} file
   * @param {Answer} answer
   * @returns {Promise<boolean>} whether to go on with this file
   */
  async #takeAnswer(file, { status, body }) {
    const isBehind = (status === 409 || status === 400) && typeof body.received === "number";
    if (status === 200 || isBehind) {
      file.received = body.received;
      // An answer that brings nothing on must not turn into a storm of requests.
      if (isBehind) {
        file.tries += 1;
        if (file.tries > USELESS + 1) await pause(file, file.tries - USELESS - 1, this.listener.redraw);
      } else file.tries = 0;
      return true;
    }
    if (file.status !== "uploading") return false;
    if (PASSING.has(status) || (status === 500 && file.tries < SERVER_ERRORS)) {
      await this.#pause(file);
      return true;
    }
    this.#fail(file, body.error.message, body.error.hint);
    return false;
  }

  /** @param {Upload} file */
  async #pause(file) {
    file.tries += 1;
    await pause(file, file.tries - 1, this.listener.redraw);
  }

  /**
   * @param {Upload} file
   * @param {string} message
   * @param {string} [hint]
   */
  #fail(file, message, hint) {
    Object.assign(file, { status: "failed", error: { message, hint } });
    this.listener.say(message);
    this.listener.redraw();
  }
}
