/** The Simulate form's arithmetic: which field is which once rows have moved. */

import assert from "node:assert/strict";
import test from "node:test";

import { nameAfter } from "../../assets/simulate/typed.mjs";

test("a field keeps its dimension when rows come, go or change places", () => {
  const bandwidths = ["bandwidth[0]", "bandwidth[1]", "bandwidth[2]"];
  for (const [verb, of, after] of [
    ["add", "", bandwidths],
    ["remove", "1/3", ["bandwidth[0]", "", "bandwidth[1]"]],
    ["inwards", "2/3", ["bandwidth[0]", "bandwidth[2]", "bandwidth[1]"]],
    ["outwards", "0/3", ["bandwidth[1]", "bandwidth[0]", "bandwidth[2]"]],
    ["undo", "", ["", "", ""]],
  ]) {
    assert.deepEqual(bandwidths.map((name) => nameAfter(name, { verb, of })), after, verb);
  }
  assert.equal(nameAfter("peak-perf", { verb: "remove", of: "0/2" }), "peak-perf");
});
