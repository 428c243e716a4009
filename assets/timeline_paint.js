/* Crowded lanes and folded ranks as lines of pixels. */
(function (t) {
  "use strict";

  /* One line of pixels per row of bins, its colours mixed by how busy each bin was. What is there at all is seen. */
  function paint(batch) {
    if (batch.dressed === t.look.name) return batch.image;
    var found = batch.found, bins = t.chart.bins, count = found.binned.length;
    var image = batch.image || document.createElement("canvas");
    image.width = bins;
    image.height = count;
    var pen = image.getContext("2d");
    var pixels = pen.createImageData(bins, count);
    for (var place = 0; place < count; place++) {
      var row = batch.rows[found.binned[place]];
      var shade = t.chart.shade[row];
      var strips = batch.strips[place].filter(function (strip) { return !t.hidden[found.strip_category[strip]]; });
      for (var bin = 0; bin < bins; bin++) {
        var red = 0, green = 0, blue = 0, sum = 0;
        for (var at = 0; at < strips.length; at++) {
          var share = found.fraction[strips[at] * bins + bin];
          if (!share) continue;
          var colour = t.look.colours[found.strip_category[strips[at]]][shade];
          red += share * colour[0];
          green += share * colour[1];
          blue += share * colour[2];
          sum += share;
        }
        if (!sum) continue;
        var to = (place * bins + bin) * 4;
        pixels.data[to] = red / sum;
        pixels.data[to + 1] = green / sum;
        pixels.data[to + 2] = blue / sum;
        pixels.data[to + 3] = 36 + (Math.min(sum, 255) * 219) / 255;
      }
    }
    pen.putImageData(pixels, 0, 0);
    batch.image = image;
    batch.dressed = t.look.name;
    return image;
  }

  /* The bars of folded ranks as one line of pixels each: hundreds of narrow bars cost as much as one. */
  function paintThin(batch) {
    if (batch.thinDressed === t.look.name) return batch.thin;
    var found = batch.found, wide = t.chart.bins * 2, count = batch.rows.length;
    var scale = wide / t.tileSpan(batch.level);
    var image = batch.thin || document.createElement("canvas");
    image.width = wide;
    image.height = count;
    var pen = image.getContext("2d");
    var pixels = pen.createImageData(wide, count);
    var words = new Uint32Array(pixels.data.buffer);
    for (var at = 0; at < count; at++) {
      for (var bar = found.bars[at]; bar < found.bars[at + 1]; bar++) {
        if (t.hidden[found.category[bar]]) continue;
        var colour = t.look.colours[found.category[bar]][t.chart.shade[batch.rows[at]]];
        var first = Math.max(0, Math.floor(found.start[bar] * scale));
        var end = Math.min(wide, Math.max(Math.round(found.end[bar] * scale), first + 1));
        if (end - first > 6) end -= 2; /* the gap that tells neighbours apart */
        words.fill((255 << 24) | (colour[2] << 16) | (colour[1] << 8) | colour[0], at * wide + first, at * wide + end);
      }
    }
    pen.putImageData(pixels, 0, 0);
    batch.thin = image;
    batch.thinDressed = t.look.name;
    return image;
  }

  t.paint = paint;
  t.paintThin = paintThin;
})(window.studioTimeline = window.studioTimeline || {});
