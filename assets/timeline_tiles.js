/* Tiles: asked for when they are missing, kept while they are of use. */
(function (t) {
  "use strict";

  function key(level, index, row) {
    return level + "/" + index + "/" + row;
  }

  function zoomLevel() {
    var perPixel = (t.shown.to - t.shown.from) / (t.width() * t.look.ratio);
    return Math.min(t.chart.top, Math.max(0, Math.ceil(Math.log2(perPixel))));
  }

  function tileSpan(level) {
    return Math.pow(2, level) * t.chart.bins;
  }

  /* Rows from the number of rows on are those of the ghost, the other run in the same lanes. */
  function ask(level, index, rows) {
    var count = t.chart.rank.length, ghosts = rows.filter(function (row) { return row >= count; });
    if (ghosts.length && ghosts.length < rows.length) {
      ask(level, index, rows.filter(function (row) { return row < count; }));
      return ask(level, index, ghosts);
    }
    var below = ghosts.length ? count : 0, more = ghosts.length ? { ghost: t.ghost } : {};
    var other = t.ghost;
    rows.sort(function (a, b) { return a - b; });
    var parts = [];
    rows.forEach(function (row) {
      t.asked.add(key(level, index, row));
      var last = parts[parts.length - 1];
      if (last && last[1] === row - below - 1) last[1] = row - below;
      else parts.push([row - below, row - below]);
    });
    var mine = t.chart;
    t.running++;
    t.get(t.address("/tile", Object.assign(more, { level: level, tile: index, rows: parts.map(function (part) { return part[0] === part[1] ? part[0] : part.join("-"); }).join(",") })))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (mine === t.chart && (!below || other === t.ghost)) keep(level, index, rows, window.studioUnpacked(buffer), buffer.byteLength);
      })
      .catch(function (error) {
        if (mine === t.chart) t.say(t.dom.status, error && error.hint !== undefined ? error.message : "The studio does not answer. Is it still running?");
        return new Promise(function (again) { window.setTimeout(again, 2000); });
      })
      .finally(function () {
        if (mine !== t.chart) return;
        t.running--;
        rows.forEach(function (row) { t.asked.delete(key(level, index, row)); });
        t.draw();
        /* What came may be under the pointer, which need not move for that to be said. */
        if (t.pointer && t.pointer[1] > 0 && !t.hover) t.later("repoint", 60, function () { if (t.dom && t.chart.ready && !t.hover) t.pointed(); });
      });
  }

  function keep(level, index, rows, found, size) {
    var batch = { level: level, index: index, begin: index * tileSpan(level), found: found, size: size / rows.length, image: null, dressed: null };
    var strips = [];
    var binned = new Map();
    found.binned.forEach(function (at, place) { binned.set(at, place); strips.push([]); });
    found.strip.forEach(function (place, strip) { strips[place].push(strip); });
    batch.strips = strips;
    rows.forEach(function (row, at) {
      var place = binned.has(at) ? binned.get(at) : -1;
      batch.rows = rows;
      t.tiles.set(key(level, index, row), { batch: batch, at: at, low: found.bars[at], high: found.bars[at + 1], binned: place, used: t.clock });
      t.keptBytes += batch.size;
    });
    if (t.keptBytes > t.KEPT_BYTES) forget();
  }

  function forgetGhost() {
    Array.from(t.tiles.keys()).forEach(function (name) {
      if (Number(name.split("/")[2]) < t.chart.rank.length) return;
      t.keptBytes -= t.tiles.get(name).batch.size;
      t.tiles.delete(name);
    });
    t.asked.clear();
  }

  t.forgetGhost = forgetGhost;

  /* What was drawn longest ago goes first; Map keeps the order in which tiles came. */
  function forget() {
    var old = Array.from(t.tiles.entries()).filter(function (entry) { return entry[1].used < t.clock - 1 && entry[1].batch.level < t.chart.top; });
    old.sort(function (a, b) { return a[1].used - b[1].used; });
    for (var at = 0; at < old.length && t.keptBytes > t.KEPT_BYTES * 0.7; at++) {
      t.tiles.delete(old[at][0]);
      t.keptBytes -= old[at][1].batch.size;
    }
  }

  function tile(level, index, row) {
    var found = t.tiles.get(key(level, index, row));
    if (found) found.used = t.clock;
    return found;
  }

  function fetchMissing(wanted) {
    var complete = !wanted.missing.size;
    if (t.dom.scroll.hasAttribute("data-ready") !== complete) t.dom.scroll.toggleAttribute("data-ready", complete);
    if (complete) {
      t.later("prefetch", 120, prefetch);
      return;
    }
    wanted.missing.forEach(function (rows, index) {
      var left = rows.filter(function (row) { return !t.asked.has(key(wanted.level, index, row)); });
      if (left.length && t.running < t.ASKED_AT_ONCE) ask(wanted.level, index, left.slice(0, 512));
    });
  }

  /* The whole run of the rows around, so that panning and scrolling never meet a blank, and the tiles to both sides. */
  function prefetch() {
    if (!t.chart || !t.chart.ready || !t.dom || !t.dom.canvas.isConnected || t.running || t.animation) return;
    var high = t.dom.scroll.clientHeight, level = zoomLevel(), span = tileSpan(level);
    var first = t.groupAt(t.dom.scroll.scrollTop - high), last = t.groupAt(t.dom.scroll.scrollTop + 2 * high);
    var rows = [], near = [];
    for (var at = first; at <= last; at++) {
      var group = t.chart.list[at];
      for (var row = group.first; row < group.first + group.count; row++) rows.push(row);
    }
    t.visible(high).forEach(function (group) { for (var row = group.first; row < group.first + group.count; row++) near.push(row); });
    var low = Math.floor(t.shown.from / span) - 1, end = Math.floor(t.shown.to / span) + 1;
    [[t.chart.top, 0, rows], [level, low, near], [level, end, near]].forEach(function (one) {
      if (one[1] < 0 || one[1] * tileSpan(one[0]) > t.chart.span) return;
      var left = one[2].filter(function (row) { return !t.tiles.has(key(one[0], one[1], row)) && !t.asked.has(key(one[0], one[1], row)); });
      if (left.length) ask(one[0], one[1], left.slice(0, 512));
    });
  }

  t.zoomLevel = zoomLevel;
  t.tileSpan = tileSpan;
  t.tile = tile;
  t.fetchMissing = fetchMissing;
})(window.studioTimeline = window.studioTimeline || {});
