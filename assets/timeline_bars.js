/* Bars of tiles, and their names. */
(function (t) {
  "use strict";

  var drawnBars = [];

  function lanes(pen, wide, high) {
    var level = t.zoomLevel(), span = t.tileSpan(level);
    var low = Math.max(0, Math.floor(t.shown.from / span)), last = Math.max(low, Math.floor(Math.min(t.shown.to, t.chart.span) / span));
    var missing = new Map();
    var bars = drawnBars; /* one list for all frames: a pan shall leave no garbage behind */
    bars.length = 0;
    t.counts.drawn = t.counts.binned = t.counts.missing = 0;
    function rowOf(row, place) {
      /* A bar that reaches into the next tile is drawn once, by the tile it begins in, where both have bars. */
      var ahead = t.tile(level, low, row), follows = false;
      for (var index = low; index <= last; index++) {
        var found = ahead;
        ahead = index < last ? t.tile(level, index + 1, row) : null;
        if (found) {
          var goesOn = found.binned < 0 && (index === last || Boolean(ahead && ahead.binned < 0));
          rowOfTile(pen, found, row, place, index * span, goesOn ? Infinity : (index + 1) * span, bars, follows);
          follows = found.binned < 0 && goesOn;
        } else {
          if (!missing.has(index)) missing.set(index, []);
          missing.get(index).push(row);
          t.counts.missing++;
          instead(pen, level, index, row, place, bars);
          follows = false;
        }
      }
    }
    t.inParts(pen, t.GUTTER, wide, high, function (groups) {
      groups.forEach(function (group) {
        for (var row = group.first; row < group.first + group.count; row++) {
          var place = t.placeOfRow(row);
          if (place.y + group.pitch < t.AXIS || place.y > high || place.behind) continue;
          rowOf(row, place);
          if (t.ghost) rowOf(row + t.chart.rank.length, t.ghostPlace(place));
        }
      });
      fill(pen, bars);
      bars.length = 0;
    });
    return { level: level, missing: missing, low: low, last: last };
  }

  /* A tile that has not come yet: what a coarser one says, else what finer ones do. */
  function instead(pen, level, index, row, place, bars) {
    var span = t.tileSpan(level), found, up;
    for (up = 1; level + up <= t.chart.top; up++) {
      found = t.tile(level + up, Math.floor(index / Math.pow(2, up)), row);
      if (found) return rowOfTile(pen, found, row, place, index * span, (index + 1) * span, bars, false);
    }
    for (up = 1; up <= 3 && level - up >= 0; up++) {
      var parts = Math.pow(2, up), finer = t.tileSpan(level - up), some = false;
      for (var part = index * parts; part < (index + 1) * parts; part++) {
        found = t.tile(level - up, part, row);
        if (found) {
          some = true;
          rowOfTile(pen, found, row, place, part * finer, (part + 1) * finer, bars, false);
        }
      }
      if (some) return;
    }
  }

  /* Draw what a tile says of a row between two moments. `follows`: the tile before has drawn what began in it. */
  function rowOfTile(pen, found, row, place, from, to, bars, follows) {
    var batch = found.batch;
    var thin = place.group.folded;
    if (found.binned >= 0 || thin) {
      if (found.binned < 0 && found.low === found.high) return;
      var image = found.binned >= 0 ? t.paint(batch) : t.paintThin(batch);
      var width_ = t.tileSpan(batch.level), bin = width_ / image.width;
      var start = Math.max(from, batch.begin), end = Math.min(to, batch.begin + width_);
      var first = Math.floor((Math.max(start, t.shown.from) - batch.begin) / bin), last = Math.ceil((Math.min(end, t.shown.to) - batch.begin) / bin);
      if (last <= first) return;
      var left = t.x(batch.begin + first * bin), right = t.x(batch.begin + last * bin);
      if (found.binned >= 0) t.counts.binned++;
      else t.counts.drawn += found.high - found.low;
      pen.globalAlpha = row >= t.chart.rank.length ? t.GHOSTLY : 1;
      pen.drawImage(image, first, found.binned >= 0 ? found.binned : found.at, last - first, 1, left, place.y, right - left, place.height);
      pen.globalAlpha = 1;
      return;
    }
    var data = batch.found;
    for (var at = found.low; at < found.high; at++) {
      var category = data.category[at];
      if (t.hidden[category]) continue;
      if (follows && data.start[at] < 0) continue;
      var begin = Math.max(batch.begin + data.start[at], from), stop = Math.min(batch.begin + data.end[at], to);
      if (stop < t.shown.from || begin > t.shown.to || stop < begin) continue;
      bars.push((row >= t.chart.rank.length ? t.FADED : 0) + category * t.SHADES.length + t.chart.shade[row], t.x(begin), t.x(stop), place.y, place.height, data.name[at], batch);
    }
  }

  var ITEMS = 7;

  function fill(pen, bars) {
    var buckets = [];
    var left = t.GUTTER - 4, right = t.size.wide + 4;
    for (var at = 0; at < bars.length; at += ITEMS) (buckets[bars[at]] = buckets[bars[at]] || []).push(at);
    t.counts.drawn += bars.length / ITEMS;
    var texts = [];
    buckets.forEach(function (places, code) {
      var ghost = code >= t.FADED, category = Math.floor((code % t.FADED) / t.SHADES.length), shade = code % t.SHADES.length;
      pen.globalAlpha = ghost ? t.GHOSTLY : 1;
      pen.fillStyle = t.look.fills[category][shade];
      places.forEach(function (at) {
        var from = Math.max(bars[at + 1], left), to = Math.min(bars[at + 2], right);
        var y = bars[at + 3], height = bars[at + 4];
        var gap = to - from > 4 ? 1 : 0;
        if (category === t.HOST) {
          y += height / 2;
          height /= 2;
        }
        pen.fillRect(from, y, Math.max(to - from - gap, 1 / t.look.ratio), height);
        if (to - from > 26 && height > 8 && !ghost) texts.push(at, category, shade);
      });
    });
    pen.globalAlpha = 1;
    pen.font = t.look.font;
    pen.textBaseline = "middle";
    for (var one = 0; one < texts.length; one += 3) label(pen, bars, texts[one], texts[one + 1], texts[one + 2]);
  }

  var widths = new Map();

  function textWidth(pen, text) {
    var known = widths.get(text);
    if (known === undefined) {
      if (widths.size > 20000) widths.clear();
      known = pen.measureText(text).width;
      widths.set(text, known);
    }
    return known;
  }

  var cuts = new Map();

  /* What fits of a name; asked for every bar in every frame, so what was found out is kept, to four pixels. */
  function cutKept(pen, text, room) {
    var key = text + "\n" + (room >> 2), known = cuts.get(key);
    if (known === undefined) {
      if (cuts.size > 20000) cuts.clear();
      known = cut(pen, text, (room >> 2) * 4);
      cuts.set(key, known);
    }
    return known;
  }

  /* The end of a hierarchical name tells more than its beginning; half a word tells nothing. */
  function cut(pen, text, room) {
    var wide = textWidth(pen, text);
    if (wide <= room) return text;
    var count = Math.floor((text.length * (room - 8)) / wide);
    if (count < 3) return "";
    var tail = text.slice(text.length - count);
    var word = tail.search(/[./:]/);
    if (word >= 0 && tail.length - word > 3) return "…" + tail.slice(word + 1);
    return count < 10 ? "" : "…" + tail;
  }

  function label(pen, bars, at, category, shade) {
    var left = Math.max(bars[at + 1], t.GUTTER), right = Math.min(bars[at + 2], t.size.wide);
    var name = bars[at + 6].found.names[bars[at + 5]];
    if (category === t.SEND) name = "→ " + name;
    if (category === t.RECEIVE) name = "← " + name;
    var text = cutKept(pen, name, right - left - 9);
    if (!text) return;
    if (category === t.SEND || category === t.RECEIVE) {
      pen.fillStyle = t.css(t.look.colours[category][shade]);
      pen.fillRect(left + 2, bars[at + 3] + 2, Math.min(textWidth(pen, text) + 4, right - left - 4), bars[at + 4] - 4);
    }
    pen.fillStyle = t.look.inks[category][shade];
    pen.fillText(text, left + 4, bars[at + 3] + bars[at + 4] / 2 + 0.5);
  }

  t.lanes = lanes;
  t.textWidth = textWidth;
})(window.studioTimeline = window.studioTimeline || {});
