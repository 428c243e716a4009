/** The routes of imports, asked again while there is no connection: see studio/server/uploads.py. */

/** @typedef {{ message: string, hint?: string, ranks_for?: string[], npus_for?: string[] }} Failure */
/** Bytes that a rank sends, or the mean of a few neighbours. */
/** @typedef {{ place: number, first: number, last: number, sent_bytes: number }} Bar */

/**
 * A job as far as it is read; see studio/et/seen.py.
 * @typedef {{ ranks: number, of_ranks: number, operations: Record<string, number>, span_ns: number,
 *   bars: Bar[], of_bars: number, sent_bytes: number, refused: [string, string][], more_refused: number
 * }} Picture
 */

/**
 * @typedef {{ phase: string, done: number, total: number | null, message?: string, unit?: string,
 *   picture?: Picture | null }} Progress
 */

/**
 * A file as the server lists it.
 * @typedef {{ id: string, path: string, size: number, received: number, status: string,
 *   error?: Failure | null, role?: string }} FileInfo
 */

/**
 * An import as the server describes it.
 * @typedef {{ id: string, name: string, status: string, size: number, received: number, files_total: number,
 *   created: number, progress: Progress | null, job: string, error: Failure | null, warnings: string[],
 *   idle_s: number | null, chunk_bytes: number, files_used: number | null, files_left_out: number | null,
 *   files?: FileInfo[] }} ImportInfo
 */

/**
 * An answer: an import, all imports, or an error.
 * @typedef {{ status: number, body: ImportInfo & { error: Failure, imports: ImportInfo[] } }} Answer
 */

/** What waits for the connection: when it tries again, and how to end the wait. */
/** @typedef {{ retryAt?: number, wake?: (() => void) | null }} Waiter */

const RETRY_FIRST_MS = 500;
const RETRY_LAST_MS = 15000;

/** Where the app lives: Dash may be served below a prefix. */
export function prefix() {
  try {
    const config = JSON.parse(document.getElementById("_dash-config")?.textContent ?? "{}");
    return config.requests_pathname_prefix || "/";
  } catch {
    return "/";
  }
}

/**
 * Ask once; rejects where there is no connection.
 *
 * @param {string} method
 * @param {string} path below the address of imports
 * @param {object | Blob} [body]
 * @param {RequestInit} [options]
 * @returns {Promise<Answer>}
 */
export async function ask(method, path, body, options = {}) {
  const isJson = body !== undefined && !(body instanceof Blob);
  const answer = await fetch(`${prefix()}api/imports${path}`, {
    method,
    body: isJson ? JSON.stringify(body) : /** @type {Blob | undefined} */ (body),
    headers: { "Content-Type": isJson ? "application/json" : "application/octet-stream" },
    cache: "no-store",
    ...options,
  });
  const text = await answer.text();
  try {
    return { status: answer.status, body: JSON.parse(text) };
  } catch {
    const message = `The server answered ${answer.status} ${answer.statusText}.`;
    const body_ = { error: { message, hint: "Reload the page." } };
    return { status: answer.status, body: /** @type {Answer["body"]} */ (body_) };
  }
}

/**
 * Wait longer with every attempt, or less long when the network is back.
 *
 * @param {Waiter} waiter shows when it tries again
 * @param {number} attempt
 * @param {() => void} redraw
 * @returns {Promise<void>}
 */
export function pause(waiter, attempt, redraw) {
  const wait = Math.min(RETRY_LAST_MS, RETRY_FIRST_MS * 2 ** attempt);
  waiter.retryAt = performance.now() + wait;
  redraw();
  return new Promise((resolve) => {
    const wake = () => {
      window.clearTimeout(timer);
      window.removeEventListener("online", wake);
      Object.assign(waiter, { wake: null, retryAt: 0 });
      redraw();
      resolve();
    };
    const timer = window.setTimeout(wake, wait);
    waiter.wake = wake;
    window.addEventListener("online", wake);
  });
}
