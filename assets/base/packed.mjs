/** @typedef {Int32Array | Uint8Array | Float32Array | Float64Array} Column */

/** @typedef {new (buffer: ArrayBuffer, offset: number, length: number) => Column} ArrayType */

/** @type {Record<string, ArrayType>} */
const ARRAYS = { int32: Int32Array, uint8: Uint8Array, float32: Float32Array, float64: Float64Array };

/**
 * Unpack what studio/server/packed.py packs: a header of JSON, then typed arrays, which become fields of it.
 *
 * The caller says which fields the answer has: `unpack(buffer)` is assigned to a variable with that type.
 *
 * @template T
 * @param {ArrayBuffer} buffer
 * @returns {T}
 */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  /** @type {[string, string, number, number][]} */
  const arrays = header.arrays;
  for (const [name, kind, offset, count] of arrays) {
    const ArrayOf = ARRAYS[kind];
    if (!ArrayOf) throw new Error(`unknown kind of array: ${kind}`);
    header[name] = new ArrayOf(buffer, 4 + length + offset, count);
  }
  return header;
}
