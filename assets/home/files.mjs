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
 * @returns {Promise<Picked[]>}
 */
async function filesOfEntry(entry) {
  if (!isWanted(entry.name)) return [];
  if (entry.isDirectory) {
    /** @type {Picked[]} */
    const found = [];
    const inner = await entriesOf(/** @type {FileSystemDirectoryEntry} */ (entry));
    for (const each of inner) found.push(...await filesOfEntry(each));
    return found;
  }
  /** @type {File} */
  const file = await new Promise((resolve, reject) => {
    /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject);
  });
  return [{ path: entry.fullPath.replace(/^\//, "") || file.name, file }];
}

/**
 * @param {DataTransfer} transfer
 * @returns {Promise<Picked[]>}
 */
export async function filesOfDrop(transfer) {
  // Entries have to be taken before the first await: the drop forgets them.
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const dropped = items.map((item) => ({ entry: item.webkitGetAsEntry?.(), file: item.getAsFile() }));
  /** @type {Picked[]} */
  const found = [];
  for (const { entry, file } of dropped) {
    if (entry) found.push(...await filesOfEntry(entry));
    else if (file) found.push({ path: file.name, file });
  }
  return found;
}

/**
 * @param {HTMLInputElement} input
 * @returns {Picked[]}
 */
export function filesOfInput(input) {
  return Array.from(input.files ?? [], (file) => ({ path: file.webkitRelativePath || file.name, file }));
}
