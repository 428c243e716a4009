/* Takes apart what studio/server/packed.py packs: a header of JSON, then typed arrays, which become fields beside the
   header's own. */
(function () {
  "use strict";

  var ARRAYS = { int32: Int32Array, uint8: Uint8Array, float32: Float32Array, float64: Float64Array };

  window.studioUnpacked = function (buffer) {
    var length = new DataView(buffer).getUint32(0, true);
    var found = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    found.arrays.forEach(function (entry) {
      found[entry[0]] = new ARRAYS[entry[1]](buffer, 4 + length + entry[2], entry[3]);
    });
    return found;
  };
})();
