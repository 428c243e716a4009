/* What the pages ask the studio for, and what it refuses. */

import { addressOf } from "../base/view.mjs";

/** @typedef {Record<string, string | number | null | undefined>} Query */

/** What the studio says when it cannot answer. */
export class Refusal extends Error {
  /** @param {string} message @param {string} hint */
  constructor(message, hint) {
    super(message);
    this.hint = hint;
  }
}

/** @param {unknown} error */
export function explain(error) {
  return error instanceof Refusal ? error.message : "The studio does not answer. Is it still running?";
}

/** An answer of the studio; a refusal is thrown. @param {string} url @returns {Promise<Response>} */
export async function ask(url) {
  const answer = await fetch(url);
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: {} }));
  throw new Refusal(error.message ?? "The studio refused the request: " + answer.status, error.hint ?? "");
}

/**
 * Like ask(), for an answer in JSON, which the caller says the type of.
 * @template T
 * @param {string} url
 * @returns {Promise<T>}
 */
export async function askJson(url) {
  return (await ask(url)).json();
}

/**
 * Where the studio answers questions about the timeline of a run.
 * @param {string} job
 * @param {string} run "" is the newest
 * @param {string} path @param {Query} [query]
 */
export function timelineAddress(job, run, path, query = {}) {
  return addressOf("/api/jobs/" + encodeURIComponent(job) + "/timeline" + path, { run, ...query });
}
