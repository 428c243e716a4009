/** What is said of an import while it is uploaded and read. No page is needed here. */

import { formatBytes, formatCount, formatRate, plural } from "../base/format.mjs";

/** @import { Bar, Picture } from "./server.mjs" */
/** @import { Card, Upload } from "./uploads.mjs" */

/** Imports that are under way. */
export const BUSY = new Set(["announcing", "uploading", "queued", "reading"]);

/** The order in which files are listed where there is no room for all. */
export const URGENT = ["failed", "left out", "uploading", "waiting", "used", "done", "cancelled"];

/** What operations do, in the order in which it is told. @type {[string, string][]} */
const WORK = [
  ["compute", "Compute"], ["copy", "Copies"], ["collective", "Collectives"], ["message", "Messages"],
  ["memory", "Memory"], ["host", "Host"],
];

/** Another window that sent nothing for so long has gone. */
const GONE_S = 15;
/** Speeds are those of the last seconds. */
const SPEED_MS = 4000, LEAST_MS = 300;

/**
 * @param {number} part
 * @param {number | null} whole
 * @returns {number} a whole number of per cent
 */
export function percent(part, whole) {
  return whole ? Math.min(100, Math.floor((100 * part) / whole)) : 100;
}

/**
 * @param {string[]} lost paths of dropped files and folders that cannot be read
 * @returns {string}
 */
export function describeLost(lost) {
  if (!lost.length) return "";
  const more = lost.length > 3 ? ` and ${lost.length - 3} more` : "";
  const subject = lost.length === 1 ? "it" : "they";
  return `Left out, as ${subject} cannot be read: ${lost.slice(0, 3).join(", ")}${more}.`;
}

/**
 * @param {number} bytesPerSecond
 * @returns {string}
 */
function formatSpeed(bytesPerSecond) {
  return formatRate(bytesPerSecond / 1e9);
}

/**
 * @param {number} seconds
 * @returns {string} how long something is about to take
 */
export function formatRemaining(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

/**
 * @param {number} retryAt
 * @param {number} now
 * @returns {string}
 */
function retryText(retryAt, now) {
  return `connection lost, retrying in ${Math.max(1, Math.ceil((retryAt - now) / 1000))} s`;
}

/**
 * Bytes of the files that are wanted, and how many of them the server has.
 *
 * @param {Card} card
 */
export function sumFiles(card) {
  const { size, received } = card;
  if (!card.mine || card.status !== "uploading") return { size: size || 0, received: received || 0 };
  const kept = card.files.filter((file) => file.status !== "cancelled");
  return {
    size: kept.reduce((sum, file) => sum + file.size, 0),
    received: kept.reduce((sum, file) => sum + file.received, 0),
  };
}

/**
 * Bytes per second of the last seconds.
 *
 * @param {[number, number][]} samples times and bytes; old ones are removed
 * @param {number} received
 * @param {number} now
 */
export function measureSpeed(samples, received, now) {
  samples.push([now, received]);
  while (samples.length > 2 && now - (samples[0]?.[0] ?? now) > SPEED_MS) samples.shift();
  const [start, before] = samples[0] ?? [now, received];
  return now - start > LEAST_MS ? Math.max(0, (received - before) / ((now - start) / 1000)) : 0;
}

/**
 * @param {Card} card
 * @param {number} now
 * @returns {string}
 */
function uploadingText(card, now) {
  const { size, received } = sumFiles(card);
  const retries = card.files.flatMap((file) => (file.retryAt ? [file.retryAt] : []));
  if (retries.length) return retryText(Math.min(...retries), now);
  if (!card.mine) {
    const isAlive = card.idle === null || card.idle < GONE_S;
    if (isAlive) return `uploading in another window · ${percent(received, size)} %`;
    return "waiting for its files: drop the same files again to continue";
  }
  const speed = measureSpeed(card.samples, received, now);
  const text = `uploading · ${percent(received, size)} % of ${formatBytes(size)}`;
  if (!speed) return text;
  return `${text} · ${formatSpeed(speed)} · ${formatRemaining((size - received) / speed)} left`;
}

/**
 * @param {Card} card
 * @returns {string}
 */
function readingText({ progress }) {
  if (!progress) return "reading";
  if (progress.message) return progress.message;
  if (!progress.total) return progress.phase;
  const { phase, done, total, unit, picture } = progress;
  const { ranks: read = 0, of_ranks: of = 0 } = picture ?? {};
  const isBytes = unit === "bytes";
  const counts = isBytes ? [formatBytes(done), formatBytes(total)] : [formatCount(done), formatCount(total)];
  const words = [phase, counts[0], "of", counts[1], isBytes ? "" : unit].filter(Boolean).join(" ");
  return of && phase === "reading" ? `${words} · ${formatCount(read)} of ${plural(of, "rank")}` : words;
}

/** Words for states that need no further details. @type {Record<string, string>} */
const STATES = { announcing: "starting", queued: "waiting to be read", done: "open" };

/**
 * @param {Card} card
 * @param {number} now
 * @returns {string}
 */
export function statusText(card, now) {
  if (card.retryAt) return retryText(card.retryAt, now);
  if (card.lost) return "connection lost, asking again";
  if (card.cancelling) return "cancelling";
  if (card.status === "uploading") return card.starting ? "uploaded" : uploadingText(card, now);
  if (card.status === "reading") return readingText(card);
  if (card.status === "interrupted") {
    const { size, received } = sumFiles(card);
    const isWhole = received >= size;
    return isWhole ? "interrupted while reading" : "interrupted: drop the same files again to continue";
  }
  if (namesAsked(card, "ranks_for").length) return "waiting for ranks";
  if (namesAsked(card, "npus_for").length) return "waiting for the number of NPUs";
  return STATES[card.status] ?? card.status;
}

/**
 * Names of files the user has to say something about.
 *
 * @param {Card} card
 * @param {"ranks_for" | "npus_for"} what
 */
export function namesAsked(card, what) {
  return (card.status === "failed" && card.error?.[what]) || [];
}

/**
 * @param {Card} card
 * @returns {number} per cent of what it is doing
 */
export function shareDone(card) {
  const { size, received } = sumFiles(card);
  const { status, progress } = card;
  if (status === "reading") return progress ? percent(progress.done, progress.total) : 0;
  if (status === "done") return 100;
  return status === "announcing" ? 0 : percent(received, size);
}

/**
 * @param {Upload} file
 * @param {number} now
 * @returns {string}
 */
export function noteText(file, now) {
  if (file.retryAt) return retryText(file.retryAt, now);
  if (file.status === "used") return file.role ? `used: ${file.role}` : "used";
  if (file.status !== "uploading" || !file.since) return file.status;
  const seconds = (now - file.since) / 1000, moved = file.received - (file.sinceReceived ?? 0);
  return moved && seconds > LEAST_MS / 1000 ? formatSpeed(moved / seconds) : formatBytes(file.size);
}

/**
 * How the files of an import were sorted: before any was read, and afterwards.
 *
 * @param {Card} card
 * @returns {string} nothing where it is not known
 */
export function sortedText({ used, leftOut, files, status }) {
  if (used === null) return "";
  // Which are damaged is known when all are read.
  const damaged = status === "done" ? files.filter((file) => file.status === "failed").length : 0;
  const whole = `${plural(used - damaged, "file")} used${damaged ? `, ${formatCount(damaged)} damaged` : ""}`;
  return `${whole}, ${leftOut ? formatCount(leftOut) : "none"} left out`;
}

/**
 * @param {Upload[]} files that are not listed
 * @returns {string}
 */
export function restText(files) {
  const words = URGENT.flatMap((status) => {
    const count = files.filter((file) => file.status === status).length;
    return count ? [`${formatCount(count)} ${status}`] : [];
  });
  return `and ${formatCount(files.length)} more: ${words.join(", ")}`;
}

/**
 * Counts of operations by what they do, with a name for each; there is none for what does not occur.
 *
 * @param {Record<string, number>} operations
 */
export function workOf(operations) {
  return WORK.flatMap(([key, name]) => {
    const count = operations[key];
    return count ? [{ key, name, count }] : [];
  });
}

/**
 * @param {Bar} bar
 * @returns {string} which ranks it stands for, and what they send
 */
export function barText({ first, last, sent_bytes: sent }) {
  if (first === last) return `rank ${formatCount(first)} sends ${formatBytes(sent)}`;
  return `ranks ${formatCount(first)} to ${formatCount(last)} send ${formatBytes(sent)} on average`;
}

/**
 * What the figure of a first picture shows.
 *
 * @param {Picture} picture
 * @returns {string}
 */
export function sentText({ sent_bytes: sent, bars }) {
  if (!sent) return "Bytes sent by rank: none so far";
  const most = Math.max(...bars.map((bar) => bar.sent_bytes));
  return `Bytes sent by rank: ${formatBytes(sent)} so far, up to ${formatBytes(most)} each`;
}
