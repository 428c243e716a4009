/** Files that are dropped or picked, folders with all they hold. */

/** @typedef {{ path: string, file: File }} Picked */

/** Rank 2 before rank 10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/**
 * Whether a file is wanted: hidden ones and what macOS adds to archives are not.
 *
 * @param {string} path
 */
export function isWanted(path) {
  return !path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX");
}

/**
 * @param {FileSystemDirectoryEntry} folder
 * @returns {Promise<FileSystemEntry[]>}
 */
async function entriesOf(folder) {
  const reader = folder.createReader();
  /** @type {FileSystemEntry[]} */
  const all = [];
  for (;;) {
    // readEntries gives 100 at a time, and an empty list at the end.
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return all;
    all.push(...some);
  }
}

/**
 * @param {FileSystemEntry} entry
 * @param {string[]} lost gets the paths of what cannot be read
 * @returns {Promise<Picked[]>}
 */
async function filesOfEntry(entry, lost) {
  if (!isWanted(entry.name)) return [];
  const path = entry.fullPath.replace(/^\//, "");
  try {
    if (entry.isDirectory) {
      /** @type {Picked[]} */
      const found = [];
      const inner = await entriesOf(/** @type {FileSystemDirectoryEntry} */ (entry));
      for (const each of inner) found.push(...await filesOfEntry(each, lost));
      return found;
    }
    /** @type {File} */
    const file = await new Promise((resolve, reject) => {
      /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject);
    });
    return [{ path: path || file.name, file }];
  } catch {
    // A folder of another account, or a link to nothing: the others may be a whole job.
    lost.push(path || entry.name);
    return [];
  }
}

/**
 * @param {DataTransfer} transfer
 * @param {string[]} lost gets the paths of what cannot be read
 * @returns {Promise<Picked[]>}
 */
export async function filesOfDrop(transfer, lost) {
  // Entries have to be taken before the first await: the drop forgets them.
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const dropped = items.map((item) => ({ entry: item.webkitGetAsEntry?.(), file: item.getAsFile() }));
  /** @type {Picked[]} */
  const found = [];
  for (const { entry, file } of dropped) {
    if (entry) found.push(...await filesOfEntry(entry, lost));
    else if (file) found.push({ path: file.name, file });
  }
  return found;
}

/**
 * Keep files of one path apart, which a list of search results may hold: all but the first in folders of
 * their own.
 *
 * @param {Picked[]} picked
 * @returns {Picked[]}
 */
export function keepApart(picked) {
  const taken = new Set();
  return picked.map(({ path, file }) => {
    let own = path;
    for (let copy = 2; taken.has(own); copy += 1) own = `${copy}/${path}`;
    taken.add(own);
    return { path: own, file };
  });
}

/**
 * @param {HTMLInputElement} input
 * @returns {Picked[]}
 */
export function filesOfInput(input) {
  return Array.from(input.files ?? [], (file) => ({ path: file.webkitRelativePath || file.name, file }));
}
