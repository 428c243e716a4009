/* Uploads: drop or pick traces on any page, see and cancel them, go on after a lost connection or a restart.

   The page may hold #home-drop, #home-pick-files, #home-pick-folder and #home-uploads; Dash renders and removes them as
   it likes, and the uploads live on here. Names of files are hostile: text enters the page as textContent only. */
(() => {
  "use strict";
  if (window.chakraUpload) return;

  const PARALLEL = 3;
  const SMALL = 512 * 1024;
  const TOGETHER = 50;
  const ROWS = 8;
  const POLL_MS = 500;
  const SMALLEST_CHUNK = 256 * 1024;
  const RETRY_FIRST_MS = 500;
  const RETRY_LAST_MS = 15000;
  // Rank 2 before rank 10.
  const byName = new Intl.Collator("en", { numeric: true });
  const BUSY = new Set(["announcing", "uploading", "queued", "reading"]);
  const READING = new Set(["queued", "reading"]);

  /** Imports by id; `mine` ones are uploaded by this tab. */
  const cards = new Map();
  let uploads = 0; // files under way
  let pending = 0; // names imports the server has not named yet
  let box = null; // the floating status box
  let live = null; // what screen readers are told

  // ---------------------------------------------------------------- the server

  /** Where the app lives: Dash may be served below a prefix. */
  function prefix() {
    const config = document.getElementById("_dash-config");
    try {
      return (config && JSON.parse(config.textContent).requests_pathname_prefix) || "/";
    } catch {
      return "/";
    }
  }

  const api = (path) => `${prefix()}api/imports${path}`;
  const jobAddress = (job) => `${prefix()}overview?job=${encodeURIComponent(job)}`;

  /** Ask once. Gives {status, body}; rejects where there is no connection. */
  async function ask(method, path, body, options = {}) {
    const json = body !== undefined && !(body instanceof Blob);
    const answer = await fetch(api(path), {
      method,
      body: json ? JSON.stringify(body) : body,
      headers: { "Content-Type": json ? "application/json" : "application/octet-stream" },
      cache: "no-store",
      ...options,
    });
    const text = await answer.text();
    try {
      return { status: answer.status, body: JSON.parse(text) };
    } catch {
      const error = { message: `The server answered ${answer.status} ${answer.statusText}.`, hint: "Reload the page." };
      return { status: answer.status, body: { error } };
    }
  }

  /** Wait, or less long when the network is back; `place.retryAt` lets the page count down. */
  function pause(place, attempt) {
    const wait = Math.min(RETRY_LAST_MS, RETRY_FIRST_MS * 2 ** attempt);
    place.retryAt = performance.now() + wait;
    dirty();
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer);
        removeEventListener("online", go);
        place.wake = null;
        place.retryAt = 0;
        dirty();
        resolve();
      };
      const timer = setTimeout(go, wait);
      place.wake = go;
      addEventListener("online", go);
    });
  }

  /** Ask until there is an answer, or until `stopped()`; null then. */
  async function askUntilAnswered(place, stopped, method, path, body) {
    for (let attempt = 0; !stopped(); attempt++) {
      try {
        return await ask(method, path, body);
      } catch {
        if (!stopped()) await pause(place, attempt);
      }
    }
    return null;
  }

  // ---------------------------------------------------------------- what is dropped or picked

  const wanted = (path) => !path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX");

  function entries(folder) {
    const reader = folder.createReader();
    return new Promise((resolve, reject) => {
      const all = [];
      // readEntries gives 100 at a time, and an empty list at the end.
      const more = () => reader.readEntries((some) => (some.length ? (all.push(...some), more()) : resolve(all)), reject);
      more();
    });
  }

  async function filesOf(entry, found) {
    if (!wanted(entry.name)) return;
    if (entry.isDirectory) {
      for (const inner of await entries(entry)) await filesOf(inner, found);
    } else {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ path: entry.fullPath.replace(/^\//, "") || file.name, file });
    }
  }

  async function filesOfDrop(transfer) {
    // Entries have to be taken before the first await: the drop forgets them.
    const items = [...transfer.items].filter((item) => item.kind === "file");
    const dropped = items.map((item) => [item.webkitGetAsEntry && item.webkitGetAsEntry(), item.getAsFile()]);
    const found = [];
    for (const [entry, file] of dropped) {
      if (entry) await filesOf(entry, found);
      else if (file) found.push({ path: file.name, file });
    }
    return found;
  }

  /** Import files: [{path, file}]. */
  async function upload(found) {
    const files = found.filter((one) => wanted(one.path)).sort((a, b) => byName.compare(a.path, b.path));
    if (!files.length) {
      say("There is no file in what was chosen.");
      return;
    }
    const card = {
      id: `pending-${++pending}`,
      name: files[0].path.split("/")[0],
      status: "announcing",
      size: files.reduce((sum, one) => sum + one.file.size, 0),
      files: [],
      mine: true,
      fresh: true,
      error: null,
      samples: [],
    };
    cards.set(card.id, card);
    say(`Uploading ${count(files.length, "file")}.`);
    dirty();
    const list = files.map(({ path, file }) => ({ path, size: file.size, modified: file.lastModified }));
    const answer = await askUntilAnswered(card, () => !cards.has(card.id), "POST", "", { files: list });
    if (!answer || !cards.has(card.id)) {
      if (answer && answer.status === 201) await askUntilAnswered({}, () => false, "DELETE", `/${answer.body.id}`);
      return;
    }
    if (answer.status !== 201) {
      card.status = "refused";
      card.error = answer.body.error;
      say(`${card.name} was refused: ${card.error.message}`);
      dirty();
      return;
    }
    remove(card);
    adopt(answer.body, new Map(files.map((one) => [one.path, one.file])));
  }

  /** Take over an import the server knows, with the files of this tab. */
  function adopt(made, fileOf) {
    const old = cards.get(made.id);
    const running = old && old.mine && old.status === "uploading";
    const card = running ? old : place(made);
    card.mine = card.fresh = true;
    card.chunk = made.chunk_bytes;
    card.files.forEach((file, index) => {
      // Dropped once more while it is uploaded: what was cancelled or has failed is wanted again.
      if (running && ["cancelled", "failed"].includes(file.status)) Object.assign(file, made.files[index], { tries: 0 });
      if (!running || file.status !== "uploading") file.file = fileOf.get(file.path);
    });
    pump();
    startIfComplete(card);
    dirty();
  }

  /** Make or refresh a card from what the server says. */
  function place(seen) {
    const card = cards.get(seen.id) || { id: seen.id, mine: false, fresh: false, files: [], samples: [] };
    const before = card.status;
    Object.assign(card, {
      name: seen.name,
      status: seen.status,
      size: seen.size,
      received: seen.received,
      total: seen.files_total,
      created: seen.created,
      progress: seen.progress,
      job: seen.job,
      error: seen.error,
      warnings: seen.warnings,
      idle: seen.idle_s,
    });
    if (seen.files) card.files = seen.files.map((file) => ({ ...file, tries: 0, retryAt: 0 }));
    if (!BUSY.has(card.status)) card.cancelling = false;
    cards.set(card.id, card);
    if (before && before !== card.status) changed(card);
    dirty();
    return card;
  }

  // ---------------------------------------------------------------- uploading

  const waits = (file) => file.file && !file.busy && ["waiting", "uploading"].includes(file.status);
  const small = (file) => file.size <= SMALL && !file.received && !file.alone;

  function pump() {
    for (const card of cards.values()) {
      if (!card.mine || card.status !== "uploading") continue;
      const queue = card.files.filter(waits);
      while (queue.length && uploads < PARALLEL) {
        const files = [queue.shift()];
        let size = files[0].size;
        while (small(files[0]) && queue.length && files.length < TOGETHER && small(queue[0]) && size + queue[0].size <= card.chunk) {
          size += queue[0].size;
          files.push(queue.shift());
        }
        run(card, files);
      }
    }
  }

  async function run(card, files) {
    uploads++;
    files.forEach((file) => (file.busy = true));
    await (files.length > 1 ? sendTogether(card, files) : send(card, files[0]));
    files.forEach((file) => (file.busy = false));
    uploads--;
    startIfComplete(card);
    pump();
    dirty();
  }

  /** Send small files in one request; one each would take a thousand of them far longer than their bytes. */
  async function sendTogether(card, files) {
    const abort = new AbortController();
    files.forEach((file) => Object.assign(file, { status: "uploading", since: 0, abort }));
    dirty();
    let answer;
    try {
      const ids = files.map((file) => file.id).join(",");
      const body = new Blob(files.map((file) => file.file));
      answer = await ask("PUT", `/${card.id}/files?ids=${ids}`, body, { signal: abort.signal });
    } catch {
      answer = null;
    }
    const open = files.filter((file) => file.status === "uploading");
    if (answer && answer.status === 200) {
      open.forEach((file) => Object.assign(file, { status: "done", received: file.size }));
      return;
    }
    // Whatever it was, each file finds out for itself: the connection, the disk, or one that cannot be read.
    open.forEach((file) => Object.assign(file, { status: "waiting", alone: true }));
  }

  async function send(card, file) {
    let size = 1024 * 1024;
    file.status = "uploading";
    file.since = performance.now();
    file.sinceReceived = file.received;
    while (file.received < file.size && file.status === "uploading" && card.status === "uploading") {
      const began = performance.now();
      file.abort = new AbortController();
      let answer;
      try {
        const chunk = file.file.slice(file.received, file.received + Math.min(size, card.chunk));
        const path = `/${card.id}/files/${file.id}?offset=${file.received}`;
        answer = await ask("PUT", path, chunk, { signal: file.abort.signal });
      } catch {
        if (file.status !== "uploading" || card.status !== "uploading") return;
        if (!(await readable(file.file))) {
          fail(file, `${file.path} can no longer be read.`, "It was changed, moved or deleted; drop it again.");
          return;
        }
        size = Math.max(SMALLEST_CHUNK, size / 2);
        await pause(file, file.tries++);
        continue;
      }
      if (!(await took(card, file, answer))) return;
      // A chunk about half a second long: progress moves, little is lost with a connection, few requests are made.
      const ms = performance.now() - began;
      if (ms < 400) size = Math.min(card.chunk, size * 2);
      else if (ms > 2000) size = Math.max(SMALLEST_CHUNK, size / 2);
      dirty();
    }
    if (file.received >= file.size && file.status === "uploading") file.status = "done";
  }

  /** Note the answer to a chunk; false ends the upload of this file. */
  async function took(card, file, { status, body }) {
    const goesOn = (status === 409 || status === 400) && typeof body.received === "number";
    if (status === 200 || goesOn) {
      file.received = body.received;
      // An answer that moves nothing must not turn into a storm of requests.
      if (goesOn && file.tries++ > 3) await pause(file, file.tries - 4);
      if (status === 200) file.tries = 0;
      return true;
    }
    if (file.status !== "uploading") return false;
    const passing = status === 408 || status === 429 || status === 502 || status === 503 || status === 504;
    if (passing || (status === 500 && file.tries < 5)) {
      await pause(file, file.tries++);
      return true;
    }
    fail(file, body.error.message, body.error.hint);
    return false;
  }

  async function readable(file) {
    try {
      await file.slice(0, 1).arrayBuffer();
      return true;
    } catch {
      return false;
    }
  }

  function fail(file, message, hint) {
    file.status = "failed";
    file.error = { message, hint };
    say(message);
    dirty();
  }

  async function startIfComplete(card) {
    const open = card.files.some((file) => file.status !== "done" && file.status !== "cancelled");
    if (cards.get(card.id) !== card || !card.mine || card.status !== "uploading" || open || card.starting) return;
    if (card.files.every((file) => file.status === "cancelled")) {
      dismiss(card);
      return;
    }
    await start(card);
  }

  /** `said`: what the user entered, `{ ranks }` or `{ npus }`. */
  async function start(card, said = {}) {
    card.starting = true;
    const gone = () => !cards.has(card.id);
    const answer = await askUntilAnswered(card, gone, "POST", `/${card.id}/start`, said);
    card.starting = false;
    if (!answer) return;
    card.fresh = true;
    if (answer.status === 202) place(answer.body);
    else refuse(card, answer.body.error);
    poll();
  }

  function refuse(card, error) {
    card.status = "failed";
    card.error = error;
    say(error.message);
    dirty();
  }

  async function cancelFile(card, file) {
    file.status = "cancelled";
    if (file.abort) file.abort.abort();
    if (file.wake) file.wake();
    dirty();
    const gone = () => !cards.has(card.id);
    await askUntilAnswered(file, gone, "DELETE", `/${card.id}/files/${file.id}`);
    if (card.mine && card.status === "uploading") startIfComplete(card);
    else refresh(card, true);
  }

  function retryFile(card, file) {
    Object.assign(file, { status: "waiting", error: null, tries: 0 });
    pump();
    dirty();
  }

  /** Cancel an import that is read, delete any other. */
  async function dismiss(card) {
    const stays = READING.has(card.status);
    const known = !card.id.startsWith("pending-");
    if (stays) card.cancelling = true;
    else remove(card);
    say(`${card.name}: ${BUSY.has(card.status) ? "cancelled" : "dismissed"}.`);
    for (const file of card.files) {
      if (file.status === "uploading" && !stays) file.status = "cancelled";
      if (file.abort && !stays) file.abort.abort();
      if (file.wake) file.wake();
    }
    if (card.wake) card.wake();
    dirty();
    if (!known) return;
    const answer = await askUntilAnswered(card, () => false, "DELETE", `/${card.id}`);
    if (answer.status === 200 && answer.body.status !== "gone") place(answer.body);
    else if (answer.status >= 400 && answer.status !== 404) {
      // Another studio works on it: it is still there.
      card.error = answer.body.error;
      cards.set(card.id, card);
      dirty();
    }
    poll();
  }

  function remove(card) {
    cards.delete(card.id);
    if (card.parts) card.parts.root.remove();
  }

  // ---------------------------------------------------------------- watching the reading

  let timer = 0;
  let tick = 0;
  let lost = 0;

  const watched = () => [...cards.values()].filter((card) => READING.has(card.status) || elsewhere(card));
  const elsewhere = (card) => card.status === "uploading" && !card.mine;

  /** Keep asking while anything is read; uploads of other tabs are asked for less often. */
  function poll() {
    if (timer || !watched().length) return;
    timer = setTimeout(async () => {
      tick++;
      const now = watched().filter((card) => READING.has(card.status) || tick % 4 === 0);
      const fine = await Promise.all(now.map((card) => refresh(card, false)));
      lost = fine.every(Boolean) ? 0 : Math.min(lost + 1, 5);
      timer = 0;
      poll();
    }, POLL_MS * 2 ** lost);
  }

  async function refresh(card, withFiles) {
    try {
      const { status, body } = await ask("GET", `/${card.id}?files=${withFiles ? 1 : 0}`);
      card.lost = false;
      if (status === 404) remove(card);
      else if (status === 200 && cards.has(card.id) && !(card.mine && card.status === "uploading")) place(body);
      dirty();
      return true;
    } catch {
      card.lost = true;
      dirty();
      return false;
    }
  }

  function changed(card) {
    if (card.status === "reading") say(`${card.name}: reading.`);
    if (card.status === "failed") {
      say(`${card.name}: ${card.error ? card.error.message : "failed."}`);
      refresh(card, true);
    }
    if (card.status === "cancelled") say(`${card.name}: cancelled.`);
    if (card.status === "done") finished(card);
  }

  function finished(card) {
    card.doneAt = Date.now();
    say(`${card.name} is open.`);
    dispatchEvent(new CustomEvent("chakra:imported", { detail: { job: card.job } }));
    const busy = [...cards.values()].some((other) => other.fresh && BUSY.has(other.status));
    const told = card.warnings && card.warnings.length;
    if (card.mine && !busy && !told && document.getElementById("home-drop")) {
      // The job itself is in view now; a box that says so would only cover it.
      card.hiddenInBox = true;
      visit(jobAddress(card.job));
    }
  }

  /** Go to a page of the app without loading it anew, which would end the uploads of this tab. */
  function visit(address) {
    if (window.studioView) window.studioView.visit(address);
    else location.assign(address);
  }

  async function recall() {
    try {
      const { status, body } = await ask("GET", "");
      if (status !== 200) return;
      for (const seen of body.imports) {
        if (cards.has(seen.id) || seen.status === "done") continue;
        const card = place(seen);
        card.fresh = READING.has(card.status);
        if (card.status === "failed") refresh(card, true);
      }
      poll();
    } catch {
      // The page is there, so the server was a moment ago; the next drop or reload will tell.
    }
  }

  // ---------------------------------------------------------------- words

  const number = new Intl.NumberFormat("en");
  const count = (n, noun) => `${number.format(n)} ${noun}${n === 1 ? "" : "s"}`;
  const percent = (part, whole) => (whole ? Math.min(100, Math.floor((100 * part) / whole)) : 100);

  function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = 0;
    while (n >= 1023.5 && power < units.length - 1) (n /= 1024), power++;
    return `${power && n < 100 ? n.toPrecision(3) : Math.round(n)} ${units[power]}`;
  }

  const rate = (perSecond) => (perSecond >= 1e6 ? `${(perSecond / 1e6).toPrecision(3)} MB/s` : `${Math.round(perSecond / 1e3)} kB/s`);

  function duration(seconds) {
    if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  const retrying = (retryAt) => `connection lost, retrying in ${Math.max(1, Math.ceil((retryAt - performance.now()) / 1000))} s`;

  /** Bytes that are here, of the files that are wanted. */
  function sums(card) {
    if (!card.mine || card.status !== "uploading") return { size: card.size || 0, received: card.received || 0 };
    const kept = card.files.filter((file) => file.status !== "cancelled");
    const add = (key) => kept.reduce((sum, file) => sum + file[key], 0);
    return { size: add("size"), received: add("received") };
  }

  function speed(card, received) {
    const now = performance.now();
    card.samples.push([now, received]);
    while (card.samples.length > 2 && now - card.samples[0][0] > 4000) card.samples.shift();
    const [then, before] = card.samples[0];
    return now - then > 300 ? Math.max(0, (received - before) / ((now - then) / 1000)) : 0;
  }

  function uploadingText(card, { size, received }) {
    const waits = card.files.filter((file) => file.retryAt);
    if (waits.length) return retrying(Math.min(...waits.map((file) => file.retryAt)));
    if (!card.mine) {
      if (card.idle === null || card.idle < 15) return `uploading in another window · ${percent(received, size)} %`;
      return "waiting for its files: drop the same files again to go on";
    }
    const perSecond = speed(card, received);
    const text = `uploading · ${percent(received, size)} % of ${bytes(size)}`;
    if (!perSecond) return text;
    return `${text} · ${rate(perSecond)} · ${duration((size - received) / perSecond)} left`;
  }

  function statusText(card) {
    const { size, received } = sums(card);
    if (card.retryAt) return retrying(card.retryAt);
    if (card.lost) return "connection lost, asking again";
    if (card.cancelling) return "cancelling";
    switch (card.status) {
      case "announcing":
        return "starting";
      case "uploading":
        return card.starting ? "uploaded" : uploadingText(card, { size, received });
      case "queued":
        return "waiting to be read";
      case "reading":
        return phaseText(card.progress);
      case "interrupted":
        if (received < size) return "interrupted: drop the same files again to go on";
        return "interrupted while it was read";
      case "done":
        return "open";
      case "failed":
        if (asked(card, "ranks_for").length) return "waiting for ranks";
        return asked(card, "npus_for").length ? "waiting for the number of NPUs" : "failed";
      default:
        return card.status;
    }
  }

  function phaseText(progress) {
    if (!progress) return "reading";
    if (progress.message) return progress.message;
    return progress.total ? `${progress.phase} ${number.format(progress.done)} of ${number.format(progress.total)}` : progress.phase;
  }

  function share(card) {
    if (card.status === "reading") return card.progress ? percent(card.progress.done, card.progress.total) : 0;
    if (card.status === "done") return 100;
    const { size, received } = sums(card);
    return card.status === "announcing" ? 0 : percent(received, size);
  }

  function say(text) {
    if (live) live.textContent = text;
  }

  // ---------------------------------------------------------------- the page

  function element(tag, options = {}, ...children) {
    const made = document.createElement(tag);
    const { text, on, ...attributes } = options;
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (on) made.addEventListener("click", on);
    made.append(...children);
    return made;
  }

  // Written only when it changes: screen readers and selections notice every write.
  function put(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }

  function show(node, visible) {
    if (node.hidden === visible) node.hidden = !visible;
  }

  function mark(node, key, value) {
    if (node.getAttribute(key) !== value) node.setAttribute(key, value);
  }

  function bar(label) {
    const fill = element("div", { class: "cs-up-fill" });
    const root = element("div", { class: "cs-up-bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, fill);
    mark(root, "aria-label", label);
    return { root, fill };
  }

  function fillBar({ root, fill }, value) {
    mark(root, "aria-valuenow", String(value));
    fill.style.width = `${value}%`;
  }

  const button = (text, on, quiet) => element("button", { type: "button", class: quiet ? "cs-up-button cs-up-quiet" : "cs-up-button", text, on });

  function link(text, address) {
    const made = element("a", { class: "cs-up-link", text, href: address });
    made.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      visit(made.getAttribute("href"));
    });
    return made;
  }

  function build(card) {
    const parts = {
      name: element("strong", { class: "cs-up-name" }),
      status: element("span", { class: "cs-up-status" }),
      bar: bar(`Progress of ${card.name}`),
      files: element("ul", { class: "cs-up-files" }),
      more: element("p", { class: "cs-up-more" }),
      error: element("p", { class: "cs-up-error" }),
      hint: element("p", { class: "cs-up-hint" }),
      warnings: element("ul", { class: "cs-up-warnings" }),
      ranks: element("form", { class: "cs-up-ranks" }),
      open: link("Open job", "#"),
      again: button("Read again", () => start(card)),
      cancel: button("Cancel all", () => dismiss(card), true),
      rows: new Map(),
    };
    parts.ranks.addEventListener("submit", (event) => {
      event.preventDefault();
      const inputs = [...parts.ranks.querySelectorAll("input")];
      const numbers = inputs.map((input) => [input.dataset.name, Number(input.value)]);
      start(card, asked(card, "npus_for").length ? { npus: numbers[0][1] } : { ranks: Object.fromEntries(numbers) });
    });
    const actions = element("div", { class: "cs-up-actions" }, parts.open, parts.again, parts.cancel);
    const head = element("div", { class: "cs-up-head" }, parts.name, parts.status, actions);
    parts.root = element(
      "section",
      { class: "cs-up-card", "data-import": card.id },
      head,
      parts.bar.root,
      parts.error,
      parts.hint,
      parts.warnings,
      parts.ranks,
      parts.files,
      parts.more,
    );
    return parts;
  }

  function draw(card) {
    const parts = (card.parts ||= build(card));
    const failed = ["failed", "refused"].includes(card.status);
    const complete = card.status !== "uploading" && card.received >= card.size && !card.files.some((file) => file.status === "failed");
    const [ranksFor, npusFor] = [asked(card, "ranks_for"), asked(card, "npus_for")];
    mark(parts.root, "data-status", card.status);
    mark(parts.root, "aria-label", `Import of ${card.name}`);
    put(parts.name, card.name);
    put(parts.status, statusText(card));
    fillBar(parts.bar, share(card));
    mark(parts.bar.root, "aria-label", `Progress of ${card.name}`);
    show(parts.bar.root, BUSY.has(card.status) || (card.status === "interrupted" && card.received < card.size));
    show(parts.error, Boolean(card.error));
    put(parts.error, card.error ? card.error.message : "");
    show(parts.hint, Boolean(card.error && card.error.hint));
    put(parts.hint, (card.error && card.error.hint) || "");
    drawList(parts.warnings, card.warnings || []);
    show(parts.open, card.status === "done");
    if (card.job) mark(parts.open, "href", jobAddress(card.job));
    mark(parts.open, "aria-label", `Open job ${card.name}`);
    show(parts.again, (failed || ["cancelled", "interrupted"].includes(card.status)) && complete && !ranksFor.length && !npusFor.length && card.status !== "refused");
    show(parts.cancel, !card.cancelling);
    put(parts.cancel, card.status === "uploading" && card.mine ? "Cancel all" : BUSY.has(card.status) ? "Cancel" : "Dismiss");
    mark(parts.cancel, "aria-label", `${parts.cancel.textContent}: ${card.name}`);
    if (npusFor.length) drawNpus(parts.ranks, npusFor);
    else drawRanks(parts.ranks, ranksFor);
    drawFiles(card, parts);
  }

  function drawList(list, texts) {
    show(list, texts.length > 0);
    if (list.children.length !== texts.length) list.replaceChildren(...texts.map((text) => element("li", { text })));
  }

  /** One number a file whose rank nothing tells; the order of the names is the first guess. */
  function drawRanks(form, names) {
    show(form, names.length > 0);
    const key = names.join("\n");
    if (form.dataset.key === key) return;
    form.dataset.key = key;
    const guess = [...names].sort(byName.compare);
    const rows = names.map((name) => {
      const input = element("input", { type: "number", min: "0", max: "1000000", step: "1", required: "" });
      input.value = String(guess.indexOf(name));
      input.dataset.name = name;
      return element("label", {}, element("span", { text: `Rank of ${name}` }), input);
    });
    const submit = element("button", { type: "submit", class: "cs-up-button", text: "Read with these ranks" });
    form.replaceChildren(element("div", { class: "cs-up-rank-list" }, ...rows), submit);
  }

  /** What the user is asked for: names of files. */
  function asked(card, what) {
    return (card.status === "failed" && card.error && card.error[what]) || [];
  }

  /** One number for all: how many NPUs run a workload that does not say it. */
  function drawNpus(form, names) {
    show(form, true);
    const key = `npus\n${names.join("\n")}`;
    if (form.dataset.key === key) return;
    form.dataset.key = key;
    const input = element("input", { type: "number", min: "1", max: "65536", step: "1", value: "8", required: "" });
    input.dataset.name = names[0];
    const label = element("label", {}, element("span", { text: `NPUs that run ${names.join(", ")}` }), input);
    const submit = element("button", { type: "submit", class: "cs-up-button", text: "Read with this number" });
    form.replaceChildren(element("div", { class: "cs-up-rank-list" }, label), submit);
  }

  const URGENT = ["failed", "uploading", "waiting", "done", "cancelled"];

  function drawFiles(card, parts) {
    const listed = card.mine && card.status === "uploading" ? card.files : card.files.filter((file) => file.error);
    const chosen = URGENT.flatMap((status) => listed.filter((file) => file.status === status)).slice(0, ROWS);
    const shown = new Set(chosen);
    for (const [file, row] of parts.rows) {
      if (!shown.has(file)) {
        row.root.remove();
        parts.rows.delete(file);
      }
    }
    let before = null;
    for (const file of listed) {
      if (!shown.has(file)) continue;
      const row = parts.rows.get(file) || buildRow(card, file);
      parts.rows.set(file, row);
      const next = before ? before.nextSibling : parts.files.firstChild;
      if (row.root !== next) parts.files.insertBefore(row.root, next);
      before = row.root;
      drawRow(card, file, row);
    }
    show(parts.files, shown.size > 0);
    const rest = listed.filter((file) => !shown.has(file));
    show(parts.more, rest.length > 0);
    if (rest.length) put(parts.more, moreText(rest));
  }

  function moreText(rest) {
    const tally = URGENT.map((status) => [rest.filter((file) => file.status === status).length, status]);
    const words = tally.filter(([n]) => n).map(([n, status]) => `${number.format(n)} ${status}`);
    return `and ${number.format(rest.length)} more: ${words.join(", ")}`;
  }

  function buildRow(card, file) {
    const row = {
      name: element("span", { class: "cs-up-file", text: file.path, title: file.path }),
      bar: bar(`Upload of ${file.path}`),
      percent: element("span", { class: "cs-up-percent" }),
      note: element("span", { class: "cs-up-note" }),
      error: element("span", { class: "cs-up-file-error" }),
      again: button("Try again", () => retryFile(card, file), true),
      cancel: button("Cancel", () => cancelFile(card, file), true),
    };
    mark(row.again, "aria-label", `Try again: ${file.path}`);
    mark(row.cancel, "aria-label", `Cancel ${file.path}`);
    row.root = element("li", { class: "cs-up-row" }, row.name, row.bar.root, row.percent, row.note, row.again, row.cancel, row.error);
    return row;
  }

  function drawRow(card, file, row) {
    const part = percent(file.received, file.size);
    mark(row.root, "data-status", file.status);
    fillBar(row.bar, part);
    put(row.percent, file.status === "cancelled" ? "" : `${part} %`);
    put(row.note, noteText(file));
    show(row.error, Boolean(file.error));
    put(row.error, file.error ? `${file.error.message} ${file.error.hint || ""}` : "");
    const open = card.status === "uploading" || card.status === "failed";
    show(row.again, file.status === "failed" && card.mine && card.status === "uploading");
    show(row.cancel, open && !["done", "cancelled"].includes(file.status));
    put(row.cancel, file.status === "failed" ? "Leave out" : "Cancel");
    mark(row.cancel, "aria-label", `${row.cancel.textContent}: ${file.path}`);
  }

  function noteText(file) {
    if (file.retryAt) return retrying(file.retryAt);
    if (file.status !== "uploading" || !file.since) return file.status;
    const seconds = (performance.now() - file.since) / 1000;
    const moved = file.received - file.sinceReceived;
    return moved && seconds > 0.3 ? rate(moved / seconds) : bytes(file.size);
  }

  // ---------------------------------------------------------------- placing it all

  let planned = false;
  let drawn = 0;

  /** Draw soon, at most ten times a second. */
  function dirty() {
    if (planned) return;
    planned = true;
    setTimeout(() => {
      planned = false;
      drawn = performance.now();
      drawAll();
      // Speeds and countdowns move on without any event.
      if ([...cards.values()].some((card) => card.mine && BUSY.has(card.status))) setTimeout(dirty, 400);
    }, Math.max(0, 100 - (performance.now() - drawn)));
  }

  function drawAll() {
    const home = document.getElementById("home-uploads");
    if (home) {
      const sorted = [...cards.values()].sort((a, b) => (b.created || Infinity) - (a.created || Infinity) || 0);
      let next = home.firstElementChild;
      for (const card of sorted) {
        draw(card);
        if (card.parts.root === next) next = next.nextElementSibling;
        else home.insertBefore(card.parts.root, next);
      }
    }
    drawBox(home);
  }

  function drawBox(home) {
    const fresh = [...cards.values()].filter((card) => card.fresh && !card.hiddenInBox);
    const visible = !home && fresh.length > 0;
    if (!box && !visible) return;
    box ||= buildBox();
    show(box.root, visible);
    if (!visible) return;
    const busy = fresh.filter((card) => BUSY.has(card.status));
    const main = busy[0] || fresh[fresh.length - 1];
    put(box.name, fresh.length > 1 && busy.length > 1 ? `${main.name} and ${busy.length - 1} more` : main.name);
    put(box.status, main.error ? main.error.message : statusText(main));
    mark(box.root, "data-status", main.status);
    fillBar(box.bar, share(main));
    show(box.bar.root, BUSY.has(main.status));
    show(box.open, main.status === "done");
    if (main.job) mark(box.open, "href", jobAddress(main.job));
    mark(box.home, "href", prefix());
    show(box.hide, !busy.length);
  }

  function buildBox() {
    const made = {
      name: element("strong", { class: "cs-up-name" }),
      status: element("span", { class: "cs-up-status" }),
      bar: bar("Progress of the import"),
      open: link("Open job", "#"),
      home: link("Show on Home", prefix()),
      hide: button("Hide", () => {
        for (const card of cards.values()) if (!BUSY.has(card.status)) card.hiddenInBox = true;
        dirty();
      }, true),
    };
    const actions = element("div", { class: "cs-up-actions" }, made.open, made.home, made.hide);
    made.root = element("aside", { class: "cs-up-float", "aria-label": "Imports" }, made.name, made.status, made.bar.root, actions);
    document.body.append(made.root);
    return made;
  }

  /** Dash has rendered something: find the drop zone and the list again. */
  function settle() {
    const zone = document.getElementById("home-drop");
    if (zone) mark(zone, "data-upload-ready", "true");
    dirty();
  }

  // ---------------------------------------------------------------- drop, pick, leave

  function input(id, label, folder) {
    const made = element("input", { type: "file", id, "aria-label": label, multiple: "", hidden: "", tabindex: "-1" });
    if (folder) made.webkitdirectory = true;
    made.addEventListener("change", () => {
      const found = [...made.files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
      // So that choosing the same files again counts as a choice.
      made.value = "";
      if (found.length) upload(found);
    });
    document.body.append(made);
    return made;
  }

  const carriesFiles = (event) => Boolean(event.dataTransfer) && [...event.dataTransfer.types].includes("Files");

  function prepare() {
    live = element("div", { class: "cs-up-live", role: "status", "aria-live": "polite" });
    const overlay = element("div", { class: "cs-up-overlay", hidden: "", "aria-hidden": "true" }, element("div", { text: "Drop traces to open them" }));
    document.body.append(live, overlay);
    const files = input("chakra-upload-files", "Choose trace files", false);
    const folder = input("chakra-upload-folder", "Choose a folder of traces", true);

    document.addEventListener("click", (event) => {
      const target = event.target instanceof Element ? event.target : null;
      if (!target) return;
      if (target.closest("#home-pick-folder")) folder.click();
      else if (target.closest("#home-pick-files")) files.click();
      else if (target.closest("#home-drop") && !target.closest("a, button, input, label, #home-uploads")) files.click();
    });

    addEventListener("dragenter", (event) => {
      if (carriesFiles(event)) show(overlay, true);
    });
    addEventListener("dragover", (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      show(overlay, true);
    });
    addEventListener("dragleave", (event) => {
      // Only the window's edge has nothing on the other side.
      if (!event.relatedTarget) show(overlay, false);
    });
    addEventListener("drop", async (event) => {
      show(overlay, false);
      if (!carriesFiles(event)) return;
      event.preventDefault();
      try {
        await upload(await filesOfDrop(event.dataTransfer));
      } catch (error) {
        say(`What was dropped cannot be read: ${error.message}.`);
      }
    });
    addEventListener("beforeunload", (event) => {
      const losing = [...cards.values()].some((card) => card.mine && ["announcing", "uploading"].includes(card.status));
      if (losing) event.preventDefault();
    });

    const ids = ["home-drop", "home-uploads"];
    let known = [];
    const look = () => {
      const now = ids.map((id) => document.getElementById(id));
      if (now.some((node, index) => node !== known[index])) {
        known = now;
        settle();
      }
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    look();
    recall();
  }

  window.chakraUpload = { upload, imports: cards };
  if (document.body) prepare();
  else addEventListener("DOMContentLoaded", prepare);
})();
