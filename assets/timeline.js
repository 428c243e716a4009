/* The Gantt on a canvas. The server sends tiles: pieces of rows at a zoom, single bars where they are few, else how busy
   each bin is (studio/server/timeline.py). What is drawn, kept and asked for depends on the size of the window alone. */
(function () {
  "use strict";

  var GUTTER = 176, AXIS = 26, ROW = 20, BAR = 16, THIN = 5, PAD = 7, LEAST = 15;
  var CATEGORIES = ["compute", "collective", "send", "receive", "memory", "host"];
  var TOKENS = ["--cs-compute", "--cs-collective", "--cs-p2p", "--cs-p2p", "--cs-memory", "--cs-host"];
  var SEND = 2, RECEIVE = 3, HOST = 5;
  var SHADES = [0, 0.18, 0.34];
  var NARROWEST_NS = 10;
  var KEPT_BYTES = 96e6;
  var ASKED_AT_ONCE = 6;
  var OPEN_AT_MOST = 12; /* ranks that are open at first; more are folded */

  var dom = null; /* scroll, canvas, spacer, status, detail of the page that is open */
  var chart = null; /* what there is to draw: the rows of a run */
  var shown = { from: 0, to: 1 }; /* the window, in ns after the beginning */
  var windowKey = null; /* the window the address holds, as it was last read or written */
  var hidden = {};
  var folds = { base: null, list: {} };
  var order = "rank";
  var marked = null; /* a selected window: [from, to] */
  var selection = null; /* what the server says of the selected node */
  var selectionKey = "";
  var chosenHere = "";
  var hover = null;
  var pointer = null;
  var tiles = new Map();
  var keptBytes = 0;
  var asked = new Set();
  var running = 0;
  var frame = 0;
  var clock = 0;
  var look = null;
  var lastWrite = 0;
  var timers = {};
  var animation = null;
  var stats = { frames: 0, spent: 0, drawn: 0, binned: 0, missing: 0 };

  function later(name, wait, act) {
    window.clearTimeout(timers[name]);
    timers[name] = window.setTimeout(act, wait);
  }

  function element(id) {
    return document.getElementById(id);
  }

  function say(node, text) {
    if (node && node.textContent !== text) node.textContent = text;
  }

  function many(count, noun) {
    return count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
  }

  /* ---- numbers as studio/units.py prints them ---- */

  function digits(size) {
    if (Number(size.toFixed(2)) < 10) return size.toFixed(2);
    if (Number(size.toFixed(1)) < 100) return size.toFixed(1);
    return Math.round(size).toLocaleString("en");
  }

  function scaled(value, units) {
    var size = Math.abs(value);
    var sign = value < 0 ? "-" : "";
    if (size === 0 || (size < units[1][1] && Number.isInteger(size))) return sign + size.toLocaleString("en") + " " + units[0][0];
    for (var at = 0; at + 1 < units.length; at++) {
      var text = digits(size / units[at][1]);
      if (Number(text.replace(/,/g, "")) < Math.round(units[at + 1][1] / units[at][1])) return sign + text + " " + units[at][0];
    }
    return sign + digits(size / units[at][1]) + " " + units[at][0];
  }

  var TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 60e9], ["h", 3600e9]];
  var SIZES = [["B", 1], ["KiB", 1024], ["MiB", 1048576], ["GiB", 1073741824], ["TiB", 1099511627776]];

  function time(ns) {
    return scaled(ns, TIMES);
  }

  /* A moment, with decimals that tell neighbours in the run apart. */
  function moment(ns) {
    var micro = chart.span < 1e7;
    var text = (Math.round(ns / (micro ? 1 : 1e3)) / 1e3).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
    return text + (micro ? " µs" : " ms");
  }

  /* ---- what the server sends ---- */

  var ARRAYS = { int32: Int32Array, float64: Float64Array, uint8: Uint8Array };

  function unpack(buffer) {
    var length = new DataView(buffer).getUint32(0, true);
    var found = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    found.arrays.forEach(function (entry) {
      found[entry[0]] = new ARRAYS[entry[1]](buffer, 4 + length + entry[2], entry[3]);
    });
    return found;
  }

  function address(path, more) {
    var base = "/api/jobs/" + encodeURIComponent(chart.job) + "/timeline" + path;
    return window.studioView.address(base, Object.assign({ run: chart.run }, more));
  }

  function get(url) {
    return fetch(url).then(function (answer) {
      if (answer.ok) return answer;
      return answer.json().then(function (found) { throw found.error; }, function () { throw { message: "The studio refuses: " + answer.status, hint: "" }; });
    });
  }

  function load(job, run) {
    var mine = { job: job, run: run, ready: false };
    chart = mine;
    tiles.clear();
    asked.clear();
    running = 0;
    keptBytes = 0;
    selection = hover = windowKey = null;
    selectionKey = "";
    later("slow", 300, function () {
      if (chart === mine && !mine.ready) say(dom.status, "Reading the timeline…");
    });
    get(address("", {}))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (chart !== mine) return;
        Object.assign(mine, unpack(buffer), { ready: true });
        prepare(mine);
        report(null);
        apply();
      })
      .catch(function (error) {
        if (chart === mine) report(error);
      });
  }

  function prepare(one) {
    var first = new Map();
    for (var row = 0; row < one.rank.length; row++) {
      var known = first.get(one.rank[row]);
      if (known) known.count++;
      else first.set(one.rank[row], { rank: one.rank[row], first: row, count: 1, finish: 0 });
    }
    for (var at = 0; at < one.ranks.length; at++) {
      if (first.has(one.ranks[at])) first.get(one.ranks[at]).finish = one.finish[at];
    }
    one.groups = first;
    one.top = Math.max(1, Math.ceil(Math.log2(one.span / one.bins)));
    /* Comm groups of a rank are told apart by shade; the same role has the same shade on every rank. */
    one.shade = new Uint8Array(one.rank.length);
    first.forEach(function (group) {
      var names = [];
      for (var row = group.first; row < group.first + group.count; row++) {
        if (one.kinds[one.kind[row]] !== "communication") continue;
        if (names.indexOf(one.name[row]) < 0) names.push(one.name[row]);
        one.shade[row] = names.indexOf(one.name[row]) % SHADES.length;
      }
    });
  }

  function report(error) {
    var box = element("timeline-error");
    if (!box) return;
    box.textContent = "";
    box.className = error ? "cs-error" : "";
    element("timeline-body").hidden = Boolean(error);
    if (!error) return;
    ["The timeline cannot be shown", error.message || "The studio does not answer.", error.hint === undefined ? "Is it still running?" : error.hint].forEach(function (text, index) {
      var line = document.createElement(index ? "p" : "strong");
      line.textContent = text || "";
      box.appendChild(line);
    });
  }

  /* ---- the view in the address ---- */

  /* What this page changes it shows at once; the others follow. */
  function change(patch, options) {
    window.studioView.change(patch, options);
    apply();
  }

  function apply() {
    if (!chart || !chart.ready || !dom) return;
    measure();
    var view = window.studioView.read();
    /* The address may be behind the hand: only a window that is new to it is taken from there. */
    var window_ = (view.from || "") + "/" + (view.to || "");
    if (window_ !== windowKey) {
      var from = Number(view.from), to = Number(view.to);
      windowKey = window_;
      animation = null;
      shown = view.to !== undefined && to > from ? clamp(from, to) : whole();
    }
    hidden = {};
    (view.hide || "").split(",").forEach(function (name) { if (CATEGORIES.indexOf(name) >= 0) hidden[CATEGORIES.indexOf(name)] = true; });
    order = view.order === "finish" ? "finish" : "rank";
    var mark = /^(\d+)-(\d+)$/.exec(view.mark || "");
    marked = mark ? [Number(mark[1]), Number(mark[2])] : null;
    readFolds(view.fold);
    dress();
    arrange(view.top);
    showLegend();
    select(view);
    draw();
  }

  function whole() {
    var margin = chart.span * 0.01;
    return { from: -margin, to: chart.span + margin };
  }

  function clamp(from, to) {
    var all = whole();
    var width = Math.min(Math.max(to - from, NARROWEST_NS), all.to - all.from);
    var middle = (from + to) / 2;
    from = Math.min(Math.max(middle - width / 2, all.from), all.to - width);
    return { from: from, to: from + width };
  }

  function readFolds(text) {
    var parts = (text || "").split(",").filter(Boolean);
    folds = { base: chart.groups.size > OPEN_AT_MOST, list: {} };
    parts.forEach(function (part) {
      if (part === "all" || part === "none") folds.base = part === "all";
      else if (/^\d+$/.test(part)) folds.list[part] = true;
    });
  }

  function writeFolds() {
    var usual = chart.groups.size > OPEN_AT_MOST;
    var parts = Object.keys(folds.list).filter(function (rank) { return folds.list[rank]; });
    if (folds.base !== usual) parts.unshift(folds.base ? "all" : "none");
    change({ fold: parts.join(",") || null });
  }

  function isFolded(rank) {
    return folds.base !== Boolean(folds.list[rank]);
  }

  /* The window goes into the address when it comes to rest; one gesture is one step back. */
  function rested() {
    later("rest", 250, function () {
      if (!chart || !chart.ready || animation || dragging()) return rested();
      var all = whole();
      var fits = shown.to - shown.from >= (all.to - all.from) * 0.9999;
      var now = Date.now();
      var patch = { from: fits ? null : Math.round(shown.from), to: fits ? null : Math.round(shown.to) };
      windowKey = fits ? "/" : patch.from + "/" + patch.to;
      change(patch, { replace: now - lastWrite < 1200 });
      lastWrite = now;
    });
  }

  function scrolled() {
    draw();
    later("scrolled", 400, function () {
      if (!chart || !chart.ready || !dom) return;
      var group = chart.list[Math.max(0, groupAt(dom.scroll.scrollTop + PAD))];
      var top = dom.scroll.scrollTop > 2 && group ? String(group.rank) : null;
      if ((window.studioView.read().top || null) !== top) change({ top: top }, { replace: true });
    });
  }

  /* ---- where things stand ---- */

  var topShown = "";

  function arrange(top) {
    var list = Array.from(chart.groups.values());
    if (order === "finish") list.sort(function (a, b) { return b.finish - a.finish || a.rank - b.rank; });
    chart.list = list;
    chart.y = new Float64Array(list.length + 1);
    chart.placeOf = new Map();
    list.forEach(function (group, at) {
      group.folded = isFolded(group.rank);
      group.pitch = group.folded ? THIN : ROW;
      chart.placeOf.set(group.rank, at);
      chart.y[at + 1] = chart.y[at] + PAD + Math.max(group.count * group.pitch, LEAST);
    });
    var height = AXIS + chart.y[list.length] + PAD;
    dom.spacer.style.height = Math.max(0, height - dom.scroll.clientHeight) + "px";
    var key = chart.job + chart.run + "/" + top;
    if (key !== topShown) {
      topShown = key;
      var place = chart.placeOf.get(Number(top));
      var wanted = top === undefined || place === undefined ? 0 : chart.y[place];
      if (Math.abs(groupAt(dom.scroll.scrollTop + PAD) - (place || 0)) > 0) dom.scroll.scrollTop = wanted;
    }
  }

  /* Which rank stands at a height of the whole list. */
  function groupAt(y) {
    var low = 0, high = chart.list.length;
    while (low < high) {
      var middle = (low + high + 1) >> 1;
      if (chart.y[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, chart.list.length - 1);
  }

  function rowAt(y) {
    measure();
    var list = y - AXIS + dom.scroll.scrollTop;
    if (y < AXIS || !chart.list.length) return null;
    var at = groupAt(list);
    var group = chart.list[at];
    var inside = Math.floor((list - chart.y[at] - PAD / 2) / group.pitch);
    return { group: group, row: inside >= 0 && inside < group.count ? group.first + inside : -1 };
  }

  function placeOfRow(row) {
    var group = chart.groups.get(chart.rank[row]);
    var at = chart.placeOf.get(group.rank);
    return { y: AXIS + chart.y[at] + PAD / 2 + (row - group.first) * group.pitch - size.top, height: group.folded ? THIN - 1 : BAR, group: group };
  }

  /* Asked of the browser once a frame: every answer may cost it a layout. */
  var size = { wide: 0, high: 0, top: 0 };

  function measure() {
    size.wide = dom.scroll.clientWidth;
    size.high = dom.scroll.clientHeight;
    size.top = dom.scroll.scrollTop;
  }

  function width() {
    return size.wide - GUTTER;
  }

  function x(ns) {
    return GUTTER + ((ns - shown.from) / (shown.to - shown.from)) * width();
  }

  function ns(px) {
    return shown.from + ((px - GUTTER) / width()) * (shown.to - shown.from);
  }

  /* ---- tiles ---- */

  function key(level, index, row) {
    return level + "/" + index + "/" + row;
  }

  function zoomLevel() {
    var perPixel = (shown.to - shown.from) / (width() * look.ratio);
    return Math.min(chart.top, Math.max(0, Math.ceil(Math.log2(perPixel))));
  }

  function tileSpan(level) {
    return Math.pow(2, level) * chart.bins;
  }

  function ask(level, index, rows) {
    rows.sort(function (a, b) { return a - b; });
    var parts = [];
    rows.forEach(function (row) {
      asked.add(key(level, index, row));
      var last = parts[parts.length - 1];
      if (last && last[1] === row - 1) last[1] = row;
      else parts.push([row, row]);
    });
    var mine = chart;
    running++;
    get(address("/tile", { level: level, tile: index, rows: parts.map(function (part) { return part[0] === part[1] ? part[0] : part.join("-"); }).join(",") }))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (mine === chart) keep(level, index, rows, unpack(buffer), buffer.byteLength);
      })
      .catch(function (error) {
        if (mine === chart) say(dom.status, error && error.hint !== undefined ? error.message : "The studio does not answer. Is it still running?");
        return new Promise(function (again) { window.setTimeout(again, 2000); });
      })
      .finally(function () {
        if (mine !== chart) return;
        running--;
        rows.forEach(function (row) { asked.delete(key(level, index, row)); });
        draw();
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
      tiles.set(key(level, index, row), { batch: batch, at: at, low: found.bars[at], high: found.bars[at + 1], binned: place, used: clock });
      keptBytes += batch.size;
    });
    if (keptBytes > KEPT_BYTES) forget();
  }

  /* What was drawn longest ago goes first; Map keeps the order in which tiles came. */
  function forget() {
    var old = Array.from(tiles.entries()).filter(function (entry) { return entry[1].used < clock - 1 && entry[1].batch.level < chart.top; });
    old.sort(function (a, b) { return a[1].used - b[1].used; });
    for (var at = 0; at < old.length && keptBytes > KEPT_BYTES * 0.7; at++) {
      tiles.delete(old[at][0]);
      keptBytes -= old[at][1].batch.size;
    }
  }

  function tile(level, index, row) {
    var found = tiles.get(key(level, index, row));
    if (found) found.used = clock;
    return found;
  }

  /* ---- colours ---- */

  function rgb(text) {
    var found = /^#(..)(..)(..)$/.exec(text.trim());
    return found ? [parseInt(found[1], 16), parseInt(found[2], 16), parseInt(found[3], 16)] : [128, 128, 128];
  }

  function mix(a, b, share) {
    return a.map(function (value, at) { return Math.round(value + (b[at] - value) * share); });
  }

  function css(colour) {
    return "rgb(" + colour.join(",") + ")";
  }

  function luminance(colour) {
    var parts = colour.map(function (value) {
      var one = value / 255;
      return one <= 0.03928 ? one / 12.92 : Math.pow((one + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  }

  function readable(colour) {
    return 1.05 / (luminance(colour) + 0.05) >= (luminance(colour) + 0.05) / 0.055 ? "#ffffff" : "#0d1014";
  }

  function hatch(colour, stroke, falling) {
    var one = document.createElement("canvas");
    one.width = one.height = 8;
    var pen = one.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = stroke;
    pen.lineWidth = 1.2;
    pen.globalAlpha = 0.3;
    pen.beginPath();
    for (var at = -8; at <= 8; at += 8) {
      pen.moveTo(at - 1, falling ? -1 : 9);
      pen.lineTo(at + 9, falling ? 9 : -1);
    }
    pen.stroke();
    return pen.createPattern(one, "repeat");
  }

  /* Everything that depends on the theme and on what is hidden; tiles are painted anew when it changes. */
  function dress() {
    var style = getComputedStyle(document.documentElement);
    var ratio = window.devicePixelRatio || 1;
    var hide = Object.keys(hidden).join();
    var name = document.documentElement.getAttribute("data-mantine-color-scheme") + "/" + ratio + "/" + hide;
    if (look && look.name === name) return;
    function token(one) { return style.getPropertyValue(one).trim(); }
    var text = rgb(token("--cs-text")), panel = rgb(token("--cs-panel"));
    var base = TOKENS.map(function (one) { return rgb(token(one)); });
    var colours = base.map(function (colour, category) {
      return SHADES.map(function (share) { return category === 1 ? mix(colour, text, share) : colour; });
    });
    look = {
      name: name, ratio: ratio, panel: panel,
      font: "11px " + token("--cs-font"), bold: "600 12px " + token("--cs-font"),
      bg: token("--cs-bg"), raised: token("--cs-raised"), border: token("--cs-border"), text: token("--cs-text"), dim: token("--cs-dim"),
      accent: token("--cs-accent"), soft: token("--cs-accent-soft"), panelText: token("--cs-panel"),
      colours: colours,
      fills: colours.map(function (shades, category) {
        return shades.map(function (colour) {
          if (category === SEND || category === RECEIVE) return hatch(css(colour), readable(colour), category === RECEIVE);
          return css(colour);
        });
      }),
      inks: colours.map(function (shades) { return shades.map(readable); }),
    };
  }

  /* One line of pixels per row of bins, its colours mixed by how busy each bin was. What is there at all is seen. */
  function paint(batch) {
    if (batch.dressed === look.name) return batch.image;
    var found = batch.found, bins = chart.bins, count = found.binned.length;
    var image = batch.image || document.createElement("canvas");
    image.width = bins;
    image.height = count;
    var pen = image.getContext("2d");
    var pixels = pen.createImageData(bins, count);
    for (var place = 0; place < count; place++) {
      var row = batch.rows[found.binned[place]];
      var shade = chart.shade[row];
      var strips = batch.strips[place].filter(function (strip) { return !hidden[found.strip_category[strip]]; });
      for (var bin = 0; bin < bins; bin++) {
        var red = 0, green = 0, blue = 0, sum = 0;
        for (var at = 0; at < strips.length; at++) {
          var share = found.fraction[strips[at] * bins + bin];
          if (!share) continue;
          var colour = look.colours[found.strip_category[strips[at]]][shade];
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
    batch.dressed = look.name;
    return image;
  }

  /* The bars of folded ranks as one line of pixels each: hundreds of narrow bars cost as much as one. */
  function paintThin(batch) {
    if (batch.thinDressed === look.name) return batch.thin;
    var found = batch.found, wide = chart.bins * 2, count = batch.rows.length;
    var scale = wide / tileSpan(batch.level);
    var image = batch.thin || document.createElement("canvas");
    image.width = wide;
    image.height = count;
    var pen = image.getContext("2d");
    var pixels = pen.createImageData(wide, count);
    var words = new Uint32Array(pixels.data.buffer);
    for (var at = 0; at < count; at++) {
      for (var bar = found.bars[at]; bar < found.bars[at + 1]; bar++) {
        if (hidden[found.category[bar]]) continue;
        var colour = look.colours[found.category[bar]][chart.shade[batch.rows[at]]];
        var first = Math.max(0, Math.floor(found.start[bar] * scale));
        var end = Math.min(wide, Math.max(Math.round(found.end[bar] * scale), first + 1));
        if (end - first > 6) end -= 2; /* the gap that tells neighbours apart */
        words.fill((255 << 24) | (colour[2] << 16) | (colour[1] << 8) | colour[0], at * wide + first, at * wide + end);
      }
    }
    pen.putImageData(pixels, 0, 0);
    batch.thin = image;
    batch.thinDressed = look.name;
    return image;
  }

  /* ---- drawing ---- */

  function draw() {
    if (!frame) frame = window.requestAnimationFrame(render);
  }

  function resize() {
    var ratio = window.devicePixelRatio || 1;
    var wide = Math.round(size.wide * ratio), high = Math.round(size.high * ratio);
    if (dom.canvas.width === wide && dom.canvas.height === high) return;
    dom.canvas.width = wide;
    dom.canvas.height = high;
    dom.canvas.style.width = size.wide + "px";
    dom.canvas.style.height = size.high + "px";
  }

  function render(now) {
    frame = 0;
    if (!dom || !chart || !chart.ready || !dom.canvas.isConnected) return;
    var began = performance.now();
    measure();
    if (size.wide < GUTTER + 40) return;
    if (animation) step(now);
    clock++;
    stats.frames++;
    dress();
    resize();
    var pen = dom.canvas.getContext("2d");
    pen.setTransform(look.ratio, 0, 0, look.ratio, 0, 0);
    pen.imageSmoothingEnabled = false;
    var wide = size.wide, high = size.high;
    pen.fillStyle = look.bg;
    pen.fillRect(0, 0, wide, high);
    var steps = ticks();
    grid(pen, steps, high);
    var wanted = lanes(pen, wide, high);
    marks(pen, high);
    arrows(pen, wide, high);
    ring(pen);
    gutter(pen, wide, high);
    axis(pen, steps, wide);
    /* Words that change at every frame cannot be read, and cost a layout each. */
    if (performance.now() - described > 150) describe();
    else later("describe", 160, describe);
    fetchMissing(wanted);
    stats.spent += performance.now() - began;
    if (animation) draw();
  }

  function visible(high) {
    var first = groupAt(size.top);
    var last = groupAt(size.top + high - AXIS);
    return chart.list.slice(first, last + 1);
  }

  function lanes(pen, wide, high) {
    var level = zoomLevel(), span = tileSpan(level);
    var low = Math.max(0, Math.floor(shown.from / span)), last = Math.max(low, Math.floor(Math.min(shown.to, chart.span) / span));
    var missing = new Map();
    var bars = [];
    stats.drawn = stats.binned = stats.missing = 0;
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, wide - GUTTER, high - AXIS);
    pen.clip();
    visible(high).forEach(function (group) {
      for (var row = group.first; row < group.first + group.count; row++) {
        var place = placeOfRow(row);
        if (place.y + group.pitch < AXIS || place.y > high) continue;
        /* A bar that reaches into the next tile is drawn once, by the tile it begins in, where both have bars. */
        var ahead = tile(level, low, row), follows = false;
        for (var index = low; index <= last; index++) {
          var found = ahead;
          ahead = index < last ? tile(level, index + 1, row) : null;
          if (found) {
            var goesOn = found.binned < 0 && (index === last || Boolean(ahead && ahead.binned < 0));
            rowOfTile(pen, found, row, place, index * span, goesOn ? Infinity : (index + 1) * span, bars, follows);
            follows = found.binned < 0 && goesOn;
          } else {
            if (!missing.has(index)) missing.set(index, []);
            missing.get(index).push(row);
            stats.missing++;
            instead(pen, level, index, row, place, bars);
            follows = false;
          }
        }
      }
    });
    fill(pen, bars);
    pen.restore();
    return { level: level, missing: missing, low: low, last: last };
  }

  /* A tile that has not come yet: what a coarser one says, else what finer ones do. */
  function instead(pen, level, index, row, place, bars) {
    var span = tileSpan(level), found, up;
    for (up = 1; level + up <= chart.top; up++) {
      found = tile(level + up, Math.floor(index / Math.pow(2, up)), row);
      if (found) return rowOfTile(pen, found, row, place, index * span, (index + 1) * span, bars, false);
    }
    for (up = 1; up <= 3 && level - up >= 0; up++) {
      var parts = Math.pow(2, up), finer = tileSpan(level - up), some = false;
      for (var part = index * parts; part < (index + 1) * parts; part++) {
        found = tile(level - up, part, row);
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
    var thin = place.height < BAR;
    if (found.binned >= 0 || thin) {
      if (found.binned < 0 && found.low === found.high) return;
      var image = found.binned >= 0 ? paint(batch) : paintThin(batch);
      var width_ = tileSpan(batch.level), bin = width_ / image.width;
      var start = Math.max(from, batch.begin), end = Math.min(to, batch.begin + width_);
      var first = Math.floor((Math.max(start, shown.from) - batch.begin) / bin), last = Math.ceil((Math.min(end, shown.to) - batch.begin) / bin);
      if (last <= first) return;
      var left = x(batch.begin + first * bin), right = x(batch.begin + last * bin);
      if (found.binned >= 0) stats.binned++;
      else stats.drawn += found.high - found.low;
      pen.drawImage(image, first, found.binned >= 0 ? found.binned : found.at, last - first, 1, left, place.y, right - left, place.height);
      return;
    }
    var data = batch.found;
    for (var at = found.low; at < found.high; at++) {
      var category = data.category[at];
      if (hidden[category]) continue;
      if (follows && data.start[at] < 0) continue;
      var begin = Math.max(batch.begin + data.start[at], from), stop = Math.min(batch.begin + data.end[at], to);
      if (stop < shown.from || begin > shown.to || stop < begin) continue;
      bars.push(category * SHADES.length + chart.shade[row], x(begin), x(stop), place.y, place.height, data.name[at], batch);
    }
  }

  var ITEMS = 7;

  function fill(pen, bars) {
    var buckets = [];
    var left = GUTTER - 4, right = size.wide + 4;
    for (var at = 0; at < bars.length; at += ITEMS) (buckets[bars[at]] = buckets[bars[at]] || []).push(at);
    stats.drawn += bars.length / ITEMS;
    var texts = [];
    buckets.forEach(function (places, code) {
      var category = Math.floor(code / SHADES.length), shade = code % SHADES.length;
      pen.fillStyle = look.fills[category][shade];
      places.forEach(function (at) {
        var from = Math.max(bars[at + 1], left), to = Math.min(bars[at + 2], right);
        var y = bars[at + 3], height = bars[at + 4];
        var gap = to - from > 4 ? 1 : 0;
        if (category === HOST) {
          y += height / 2;
          height /= 2;
        }
        pen.fillRect(from, y, Math.max(to - from - gap, 1 / look.ratio), height);
        if (to - from > 26 && height > 8) texts.push(at, category, shade);
      });
    });
    pen.font = look.font;
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
    var left = Math.max(bars[at + 1], GUTTER), right = Math.min(bars[at + 2], size.wide);
    var name = bars[at + 6].found.names[bars[at + 5]];
    if (category === SEND) name = "→ " + name;
    if (category === RECEIVE) name = "← " + name;
    var text = cut(pen, name, right - left - 9);
    if (!text) return;
    if (category === SEND || category === RECEIVE) {
      pen.fillStyle = css(look.colours[category][shade]);
      pen.fillRect(left + 2, bars[at + 3] + 2, Math.min(textWidth(pen, text) + 4, right - left - 4), bars[at + 4] - 4);
    }
    pen.fillStyle = look.inks[category][shade];
    pen.fillText(text, left + 4, bars[at + 3] + bars[at + 4] / 2 + 0.5);
  }

  function ticks() {
    var span = shown.to - shown.from;
    var least = (span * 96) / Math.max(width(), 1);
    var power = Math.pow(10, Math.floor(Math.log10(least)));
    var step_ = [1, 2, 5, 10].map(function (one) { return one * power; }).find(function (one) { return one >= least; });
    step_ = Math.max(1, step_);
    var unit = TIMES.slice(0, 4).filter(function (one) { return one[1] <= Math.max(Math.abs(shown.to), 1) && step_ >= one[1] / 1000; }).pop() || TIMES[0];
    var decimals = Math.max(0, Math.min(3, Math.ceil(-Math.log10(step_ / unit[1]) - 1e-9)));
    var found = [];
    for (var at = Math.ceil(shown.from / step_); at * step_ <= shown.to; at++) {
      if (at < 0) continue;
      var text = ((at * step_) / unit[1]).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
      found.push([at * step_, at === 0 ? "0" : text + " " + unit[0]]);
    }
    return found;
  }

  function grid(pen, steps, high) {
    pen.strokeStyle = look.border;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.beginPath();
    steps.forEach(function (one) {
      var at = Math.round(x(one[0])) + 0.5;
      if (at < GUTTER) return;
      pen.moveTo(at, AXIS);
      pen.lineTo(at, high);
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function axis(pen, steps, wide) {
    pen.fillStyle = look.panelText;
    pen.fillRect(0, 0, wide, AXIS);
    pen.fillStyle = look.dim;
    pen.font = look.font;
    pen.textBaseline = "middle";
    steps.forEach(function (one) {
      var at = x(one[0]);
      var wideText = textWidth(pen, one[1]);
      if (at < GUTTER - 1 || at + 4 + wideText > wide) return;
      pen.fillText(one[1], at + 4, AXIS / 2 + 2);
      pen.fillRect(Math.round(at), AXIS - 6, 1, 6);
    });
    pen.fillStyle = look.border;
    pen.fillRect(0, AXIS - 1, wide, 1);
    /* Where the window lies in the whole. */
    var room = wide - GUTTER;
    var from = Math.max(0, shown.from / chart.span), to = Math.min(1, shown.to / chart.span);
    if (to - from < 0.999) {
      pen.fillStyle = look.raised;
      pen.fillRect(GUTTER, 0, room, 4);
      pen.fillStyle = look.dim;
      pen.fillRect(GUTTER + from * room, 0, Math.max(3, (to - from) * room), 4);
    }
    if (marked) {
      pen.fillStyle = look.accent;
      var left = Math.max(x(marked[0]), GUTTER), right = Math.min(x(marked[1]), wide);
      if (right > left) pen.fillRect(left, AXIS - 4, right - left, 3);
    }
    pen.font = look.font;
    pen.fillStyle = look.dim;
    pen.fillText(many(chart.list.length, "rank"), 12, AXIS / 2 + 2);
  }

  var LANES = { compute: "compute", communication: "", memory: "memory", cpu: "CPU", thread: "thread ", stream: "stream " };

  function laneName(row) {
    var kind = chart.kinds[chart.kind[row]], name = chart.names[chart.name[row]];
    if (kind === "communication") return /^\d+$/.test(name) ? "group " + name : name;
    return LANES[kind] + (name || "");
  }

  function gutter(pen, wide, high) {
    pen.fillStyle = look.panelText;
    pen.fillRect(0, AXIS, GUTTER, high - AXIS);
    pen.textBaseline = "middle";
    visible(high).forEach(function (group) {
      var at = chart.placeOf.get(group.rank);
      var top = AXIS + chart.y[at] - size.top, bottom = AXIS + chart.y[at + 1] - size.top;
      pen.fillStyle = look.border;
      if (at) pen.fillRect(0, Math.round(top), wide, 1);
      if (selection && selection.bar && selection.bar.rank === group.rank) {
        pen.fillStyle = look.accent;
        pen.fillRect(0, Math.max(top + 1, AXIS), 3, bottom - top - 1);
      }
      var y = Math.min(Math.max(top + PAD / 2 + 8, AXIS + 10), Math.max(bottom - 9, top + 9));
      pen.fillStyle = look.dim;
      twisty(pen, 14, y, group.folded);
      pen.font = look.bold;
      pen.fillStyle = look.text;
      pen.fillText("rank " + group.rank, 24, y + 0.5);
      if (group.folded) return;
      pen.font = look.font;
      pen.fillStyle = look.dim;
      for (var row = group.first; row < group.first + group.count; row++) {
        if (chart.level[row]) continue;
        var text = cutEnd(pen, laneName(row), GUTTER - 92);
        pen.fillText(text, GUTTER - 8 - textWidth(pen, text), placeOfRow(row).y + BAR / 2 + 0.5);
      }
    });
    pen.fillStyle = look.border;
    pen.fillRect(GUTTER - 1, AXIS, 1, high - AXIS);
  }

  function cutEnd(pen, text, room) {
    var wide = textWidth(pen, text);
    return wide <= room ? text : text.slice(0, Math.max(1, Math.floor((text.length * (room - 8)) / wide))) + "…";
  }

  function twisty(pen, at, y, folded) {
    pen.beginPath();
    if (folded) {
      pen.moveTo(at - 2, y - 4);
      pen.lineTo(at + 3, y);
      pen.lineTo(at - 2, y + 4);
    } else {
      pen.moveTo(at - 4, y - 2);
      pen.lineTo(at, y + 3);
      pen.lineTo(at + 4, y - 2);
    }
    pen.fill();
  }

  function marks(pen, high) {
    if (!marked) return;
    var left = Math.max(x(marked[0]), GUTTER), right = Math.max(x(marked[1]), GUTTER);
    pen.fillStyle = look.accent;
    pen.globalAlpha = marked[0] > shown.from || marked[1] < shown.to ? 0.1 : 0;
    pen.fillRect(left, AXIS, right - left, high - AXIS);
    pen.globalAlpha = 0.8;
    [marked[0], marked[1]].forEach(function (one) {
      if (x(one) >= GUTTER) pen.fillRect(Math.round(x(one)), AXIS, 1, high - AXIS);
    });
    pen.globalAlpha = 1;
  }

  function boxOf(bar) {
    if (!chart.groups.has(bar.rank)) return null;
    var place = placeOfRow(bar.row);
    return { left: x(bar.start), right: Math.max(x(bar.end), x(bar.start) + 1.5), y: place.y, height: place.height };
  }

  function ring(pen) {
    var box = selection && selection.bar && boxOf(selection.bar);
    if (!box) return;
    var left = Math.max(box.left, GUTTER - 6), right = Math.min(box.right, size.wide + 6);
    if (right < GUTTER || box.y + box.height < AXIS) return;
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, size.wide, size.high);
    pen.clip();
    pen.lineWidth = 2;
    pen.strokeStyle = look.accent;
    pen.strokeRect(left - 2, box.y - 2, Math.max(right - left, 2) + 4, box.height + 4);
    pen.restore();
  }

  /* Direct dependencies of the selected node: what it waits for, and what waits for it. */
  function arrows(pen, wide, high) {
    var box = selection && selection.bar && boxOf(selection.bar);
    if (!box) return;
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, wide - GUTTER, high - AXIS);
    pen.clip();
    pen.fillStyle = look.text;
    selection.up.forEach(function (one) { arrow(pen, boxOf(one), box, one.data); });
    selection.down.forEach(function (one) { arrow(pen, box, boxOf(one), one.data); });
    pen.restore();
  }

  function arrow(pen, from, to, data) {
    if (!from || !to) return;
    var x0 = limit(from.right), x1 = limit(to.left), head = 1;
    var path = new Path2D(), y1;
    if (from.y === to.y) {
      /* Along one lane it goes below the bars, which it would strike out. */
      var low = from.y + from.height + 1, bow = low + Math.min(12, 5 + Math.abs(x1 - x0) / 40);
      y1 = low;
      path.moveTo(x0, low);
      path.bezierCurveTo(x0 + 3, bow, x1 - 3, bow, x1 + 1, low + 4);
    } else {
      var y0 = from.y + from.height / 2, bend = Math.min(60, Math.max(14, Math.abs(x1 - x0) / 2));
      y1 = to.y + to.height / 2;
      head = 0;
      path.moveTo(x0, y0);
      path.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
    }
    pen.setLineDash([]);
    pen.strokeStyle = look.bg;
    pen.lineWidth = 3.5;
    pen.stroke(path);
    pen.setLineDash(data ? [] : [4, 3]);
    pen.strokeStyle = look.text;
    pen.lineWidth = 1.3;
    pen.stroke(path);
    pen.beginPath();
    pen.moveTo(head ? x1 + 1 : x1, y1);
    pen.lineTo(head ? x1 - 2.5 : x1 - 6, head ? y1 + 6 : y1 - 3.5);
    pen.lineTo(head ? x1 + 4.5 : x1 - 6, head ? y1 + 6 : y1 + 3.5);
    pen.fill();
  }

  function limit(px) {
    return Math.min(Math.max(px, GUTTER - 5000), size.wide + 5000);
  }

  /* ---- asking for what is missing ---- */

  function fetchMissing(wanted) {
    var complete = !wanted.missing.size;
    if (dom.scroll.hasAttribute("data-ready") !== complete) dom.scroll.toggleAttribute("data-ready", complete);
    if (complete) {
      later("prefetch", 120, prefetch);
      return;
    }
    wanted.missing.forEach(function (rows, index) {
      var left = rows.filter(function (row) { return !asked.has(key(wanted.level, index, row)); });
      if (left.length && running < ASKED_AT_ONCE) ask(wanted.level, index, left.slice(0, 512));
    });
  }

  /* The whole run of the rows around, so that panning and scrolling never meet a blank, and the tiles to both sides. */
  function prefetch() {
    if (!chart || !chart.ready || !dom || !dom.canvas.isConnected || running || animation) return;
    var high = dom.scroll.clientHeight, level = zoomLevel(), span = tileSpan(level);
    var first = groupAt(dom.scroll.scrollTop - high), last = groupAt(dom.scroll.scrollTop + 2 * high);
    var rows = [], near = [];
    for (var at = first; at <= last; at++) {
      var group = chart.list[at];
      for (var row = group.first; row < group.first + group.count; row++) rows.push(row);
    }
    visible(high).forEach(function (group) { for (var row = group.first; row < group.first + group.count; row++) near.push(row); });
    var low = Math.floor(shown.from / span) - 1, end = Math.floor(shown.to / span) + 1;
    [[chart.top, 0, rows], [level, low, near], [level, end, near]].forEach(function (one) {
      if (one[1] < 0 || one[1] * tileSpan(one[0]) > chart.span) return;
      var left = one[2].filter(function (row) { return !tiles.has(key(one[0], one[1], row)) && !asked.has(key(one[0], one[1], row)); });
      if (left.length) ask(one[0], one[1], left.slice(0, 512));
    });
  }

  /* ---- words ---- */

  var described = 0;

  function describe() {
    described = performance.now();
    if (!dom || !chart || !chart.ready) return;
    var window_ = time(Math.round(Math.min(shown.to, chart.span) - Math.max(shown.from, 0)));
    var words = many(stats.drawn, "bar") + " of " + many(chart.bars, "node") + " · " + window_ + " shown";
    if (stats.binned) words += " · crowded lanes as share of time busy";
    say(dom.detail, words);
    if (!hover) say(dom.status, restingSentence());
  }

  function restingSentence() {
    if (marked) return "Window " + moment(marked[0]) + " to " + moment(marked[1]) + ": " + time(marked[1] - marked[0]) + " · Z zooms to it, Esc clears it";
    if (selection && selection.bar) return sentence(selection.bar);
    if (selectionKey) return selection ? "The selected node has no times here." : dom.status.textContent;
    return "Point at a bar, or press ? for the keys.";
  }

  function sentence(bar) {
    var parts = ["rank " + bar.rank, bar.name || "(no name)"];
    if (bar.bytes) parts.push(scaled(bar.bytes, SIZES));
    parts.push("issued " + moment(bar.start), "callback " + moment(bar.end), time(bar.end - bar.start));
    return parts.join(" · ");
  }

  /* What is under the pointer: a bar, or a bin of a row that is too full for bars. */
  function under(px, py) {
    if (px < GUTTER || py < AXIS) return null;
    var place = rowAt(py);
    if (!place || place.row < 0) return null;
    var at = ns(px), level = zoomLevel(), reach = ((shown.to - shown.from) / width()) * 3;
    var found = tile(level, Math.floor(at / tileSpan(level)), place.row);
    if (!found || at < 0) return null;
    var data = found.batch.found, begin = found.batch.begin;
    if (found.binned >= 0) return bin(found, place.row, at);
    var best = null, nearest = reach;
    for (var one = found.low; one < found.high; one++) {
      if (hidden[data.category[one]]) continue;
      var start = begin + data.start[one], end = begin + data.end[one];
      var away = at < start ? start - at : at >= end ? at - end : -1;
      if (away < nearest) {
        nearest = away;
        best = { rank: chart.rank[place.row], row: place.row, start: start, end: end, name: data.names[data.name[one]], bytes: data.bytes[one], index: data.node[one] };
      }
    }
    return best && { bar: best };
  }

  function bin(found, row, at) {
    var data = found.batch.found, bins = chart.bins;
    var size = tileSpan(found.batch.level) / bins;
    var index = Math.min(bins - 1, Math.floor((at - found.batch.begin) / size));
    var parts = found.batch.strips[found.binned].map(function (strip) {
      var share = data.fraction[strip * bins + index] / 255;
      return share ? CATEGORIES[data.strip_category[strip]] + " " + (share < 0.01 ? "under 1" : Math.round(share * 100)) + " %" : "";
    }).filter(Boolean);
    var begun = data.begun[found.binned * bins + index];
    var from = found.batch.begin + index * size;
    var words = ["rank " + chart.rank[row] + " · " + laneName(row), moment(from) + " to " + moment(from + size), parts.length ? "busy: " + parts.join(", ") : "idle"];
    if (begun) words.push(many(begun, "node") + " begin");
    return { words: words.join(" · "), row: row, at: at, within: size / 2 };
  }

  function pointed() {
    var found = pointer && !dragging() ? under(pointer[0], pointer[1]) : null;
    hover = found;
    dom.canvas.style.cursor = found && found.bar ? "pointer" : pointer && pointer[0] < GUTTER ? "default" : "crosshair";
    if (!found) return draw();
    say(dom.status, found.bar ? sentence(found.bar) : found.words);
    if (found.bar) return;
    /* Too full for bars: the server knows which node it is. */
    later("point", 120, function () {
      if (hover !== found) return;
      get(address("/node", { row: found.row, at: Math.round(found.at), within: Math.ceil(found.within) }))
        .then(function (answer) { return answer.json(); })
        .then(function (answer) {
          if (hover === found && answer.bar) say(dom.status, sentence(answer.bar) + " · " + found.words.split(" · ").slice(3).join(" · "));
        })
        .catch(function () { /* The bin's own words stay. */ });
    });
  }

  /* ---- selection ---- */

  function choose(bar) {
    if (!bar) return;
    chosenHere = bar.rank + "/" + bar.node;
    hover = null;
    change({ rank: bar.rank, node: bar.node });
  }

  function select(view) {
    var wanted = view.node ? (view.rank === undefined ? chart.ranks[0] : view.rank) + "/" + view.node : "";
    if (wanted === selectionKey) return;
    selectionKey = wanted;
    selection = waiting = null;
    if (!wanted) return;
    var mine = chart, byHand = wanted === chosenHere;
    chosenHere = "";
    get(address("/node", { rank: wanted.split("/")[0], node: view.node }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (mine !== chart || wanted !== selectionKey) return;
        selection = answer;
        if (answer.bar) reveal(answer.bar, byHand);
        draw();
        if (waiting) waiting();
        waiting = null;
      })
      .catch(function () {
        /* The inspector says what is wrong with the node. */
        if (mine === chart && wanted === selectionKey) selection = { bar: null, up: [], down: [] };
      });
  }

  /* Bring a bar into sight; what is in sight already stays where it is. */
  function reveal(bar, byHand) {
    var group = chart.groups.get(bar.rank);
    if (!group) return;
    measure();
    var place = placeOfRow(bar.row);
    if (place.y < AXIS + 4 || place.y + place.height > dom.scroll.clientHeight - 4) {
      dom.scroll.scrollTop += place.y - dom.scroll.clientHeight / 2;
    }
    var span = shown.to - shown.from;
    if (bar.end < shown.from || bar.start > shown.to) {
      var wide = Math.min(Math.max(span, (bar.end - bar.start) * 1.2), whole().to - whole().from);
      var middle = (bar.start + bar.end) / 2;
      if (bar.end - bar.start > wide) middle = bar.start + wide * 0.4;
      go(middle - wide / 2, middle + wide / 2, !byHand);
    }
  }

  function pick(px, py) {
    var found = under(px, py);
    if (!found) return;
    var query = found.bar ? { rank: found.bar.rank, index: found.bar.index } : { row: found.row, at: Math.round(found.at), within: Math.ceil(found.within) };
    var mine = chart;
    get(address("/node", query))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) { if (mine === chart && answer.bar) choose(answer.bar); })
      .catch(function () { /* The view stays as it is. */ });
  }

  /* What a key is to do with a selection the server has not told about yet. */
  var waiting = null;

  function walk(kind) {
    if (selectionKey && !selection) {
      waiting = function () { walk(kind); };
      return;
    }
    if (!selection || !selection.bar) return pickFirst();
    if (kind === "previous" || kind === "next") return choose(selection[kind]);
    var found = selection[kind].slice().sort(function (a, b) { return kind === "up" ? b.end - a.end : a.start - b.start; });
    if (found.length) choose(found[0]);
    else say(dom.status, kind === "up" ? "This node waits for nothing that has times." : "Nothing that has times waits for this node.");
  }

  /* Nothing is selected yet: begin with the first bar in sight. */
  function pickFirst() {
    var group = visible(dom.scroll.clientHeight)[0];
    if (!group) return;
    var middle = Math.max(0, Math.round((Math.max(shown.from, 0) + shown.to) / 2)), mine = chart;
    get(address("/node", { row: group.first, at: middle, within: Math.ceil((shown.to - shown.from) / 2) }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) { if (mine === chart && answer.bar) choose(answer.bar); })
      .catch(function () { /* There is nothing to begin with. */ });
  }

  /* ---- moving ---- */

  function go(from, to, atOnce) {
    var target = clamp(from, to);
    if (atOnce || window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      animation = null;
      shown = target;
    } else {
      animation = { from: shown, to: target, began: performance.now() };
    }
    draw();
    rested();
  }

  function step(now) {
    var done = Math.min(1, Math.max(0, (now - animation.began) / 110));
    var ease = 1 - Math.pow(1 - done, 3);
    shown = { from: animation.from.from + (animation.to.from - animation.from.from) * ease, to: animation.from.to + (animation.to.to - animation.from.to) * ease };
    if (done === 1) {
      shown = animation.to;
      animation = null;
    }
  }

  function target() {
    return animation ? animation.to : shown;
  }

  function pan(share) {
    var now = target(), by = (now.to - now.from) * share;
    go(now.from + by, now.to + by);
  }

  function zoom(factor, px, atOnce) {
    var now = target();
    var share = px === null ? 0.5 : (px - GUTTER) / width();
    var at = now.from + share * (now.to - now.from);
    var wide = (now.to - now.from) / factor;
    if (wide < NARROWEST_NS) wide = NARROWEST_NS;
    go(at - share * wide, at + (1 - share) * wide, atOnce);
  }

  function fit() {
    var all = whole();
    go(all.from, all.to);
  }

  /* ---- hands ---- */

  var drag = null;
  var fingers = new Map();

  function dragging() {
    return Boolean(drag && drag.moved) || fingers.size > 1;
  }

  function local(event) {
    var box = dom.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function down(event) {
    if (event.button !== 0 || !chart || !chart.ready) return;
    dom.scroll.focus({ preventScroll: true });
    var at = local(event);
    if (at[0] > dom.scroll.clientWidth) return;
    fingers.set(event.pointerId, at);
    if (fingers.size === 2) {
      drag = null;
      return;
    }
    animation = null;
    drag = { at: at, from: shown.from, to: shown.to, top: dom.scroll.scrollTop, moved: false, ruler: at[0] > GUTTER && (event.shiftKey || at[1] < AXIS), touch: event.pointerType === "touch" };
  }

  function move(event) {
    if (!dom || !chart || !chart.ready) return;
    var at = local(event);
    pointer = at;
    if (fingers.has(event.pointerId)) {
      if (fingers.size === 2) return pinch(event, at);
      fingers.set(event.pointerId, at);
    }
    if (!drag) return pointed();
    if (!drag.moved && Math.hypot(at[0] - drag.at[0], at[1] - drag.at[1]) < 4) return;
    if (!drag.moved) {
      drag.moved = true;
      dom.canvas.setPointerCapture(event.pointerId);
      hover = null;
    }
    if (drag.ruler) {
      var ends = [ns(drag.at[0]), ns(Math.max(at[0], GUTTER))].map(function (one) { return Math.round(Math.min(Math.max(one, 0), chart.span)); });
      marked = [Math.min(ends[0], ends[1]), Math.max(ends[0], ends[1])];
    } else {
      var by = ((at[0] - drag.at[0]) / width()) * (drag.to - drag.from);
      shown = clamp(drag.from - by, drag.to - by);
      if (!drag.touch) dom.scroll.scrollTop = drag.top - (at[1] - drag.at[1]);
    }
    draw();
  }

  function pinch(event, at) {
    var other = Array.from(fingers.keys()).find(function (id) { return id !== event.pointerId; });
    var before = fingers.get(event.pointerId), still = fingers.get(other);
    var was = Math.abs(before[0] - still[0]), is = Math.abs(at[0] - still[0]);
    fingers.set(event.pointerId, at);
    if (was > 8 && is > 8) zoom(is / was, (at[0] + still[0]) / 2, true);
  }

  function up(event) {
    fingers.delete(event.pointerId);
    if (!drag) return;
    var was = drag;
    drag = null;
    if (!was.moved) {
      if (event.type === "pointerup") tap(was.at);
    } else if (was.ruler) {
      change({ mark: marked && marked[1] > marked[0] ? marked.join("-") : null });
    } else {
      rested();
    }
    draw();
  }

  function tap(at) {
    if (at[0] >= GUTTER) return pick(at[0], at[1]);
    var place = rowAt(at[1]);
    if (!place) return;
    folds.list[place.group.rank] = !folds.list[place.group.rank];
    writeFolds();
  }

  function wheel(event) {
    if (!chart || !chart.ready) return;
    var by = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      var turn = (event.deltaY || event.deltaX) * by;
      animation = null;
      zoom(Math.exp(-Math.max(-120, Math.min(120, turn)) * (event.ctrlKey && Math.abs(turn) < 30 ? 0.012 : 0.0025)), Math.max(local(event)[0], GUTTER), true);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      animation = null;
      var shift = ((event.deltaX * by) / width()) * (shown.to - shown.from);
      go(shown.from + shift, shown.to + shift, true);
    }
  }

  var KEYS = {
    w: function () { zoom(1.5, aim()); }, s: function () { zoom(1 / 1.5, aim()); },
    a: function () { pan(-0.2); }, d: function () { pan(0.2); },
    ArrowLeft: function () { pan(-0.1); }, ArrowRight: function () { pan(0.1); },
    ArrowUp: function () { dom.scroll.scrollTop -= 60; }, ArrowDown: function () { dom.scroll.scrollTop += 60; },
    PageUp: function () { dom.scroll.scrollTop -= dom.scroll.clientHeight * 0.9; }, PageDown: function () { dom.scroll.scrollTop += dom.scroll.clientHeight * 0.9; },
    "+": function () { zoom(2, aim()); }, "=": function () { zoom(2, aim()); }, "-": function () { zoom(0.5, aim()); },
    "0": fit, f: fitSelection,
    ".": function () { walk("next"); }, ",": function () { walk("previous"); },
    "[": function () { walk("up"); }, "]": function () { walk("down"); },
    z: function () { if (marked) go(marked[0], marked[1]); },
    "?": help,
    Escape: function () {
      if (marked) change({ mark: null });
      else if (selectionKey) change({ node: null });
    },
  };

  function aim() {
    return pointer && pointer[0] > GUTTER ? pointer[0] : null;
  }

  /* F fits the selected node; once it fills the window, or where none is selected, everything. */
  function fitSelection() {
    if (selectionKey && !selection) {
      waiting = fitSelection;
      return;
    }
    var bar = selection && selection.bar, now = target();
    if (!bar) return fit();
    var wide = Math.max((bar.end - bar.start) * 1.5, NARROWEST_NS * 4), middle = (bar.start + bar.end) / 2;
    if (Math.abs(now.to - now.from - wide) < wide * 0.01) return fit();
    go(middle - wide / 2, middle + wide / 2);
  }

  function help() {
    var box = element("timeline-keys");
    if (box && !box.open) box.showModal();
  }

  function pressed(event) {
    if (!dom || !dom.canvas.isConnected || !chart || !chart.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    var here = document.activeElement;
    if (here && here !== document.body && here !== dom.scroll) return;
    var act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /* ---- legend, buttons, export ---- */

  function showLegend() {
    document.querySelectorAll("#timeline-legend [data-category]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(!hidden[Number(button.getAttribute("data-category"))]));
    });
    say(element("timeline-fold"), folds.base && !Object.keys(folds.list).length ? "Open all" : "Fold all");
    var sort = element("timeline-order");
    if (sort) sort.setAttribute("aria-pressed", String(order === "finish"));
  }

  function toggle(category) {
    hidden[category] = !hidden[category];
    var names = CATEGORIES.filter(function (_, at) { return hidden[at]; });
    change({ hide: names.join(",") || null });
  }

  function foldAll() {
    folds = { base: !(folds.base && !Object.keys(folds.list).length), list: {} };
    writeFolds();
  }

  function save(url, name) {
    var link = document.createElement("a");
    link.href = url;
    link.download = name;
    document.body.appendChild(link);
    link.click();
    link.remove();
  }

  function png() {
    dom.canvas.toBlob(function (blob) {
      var url = URL.createObjectURL(blob);
      save(url, "timeline-" + chart.job + ".png");
      window.setTimeout(function () { URL.revokeObjectURL(url); }, 10000);
    });
  }

  /* The window that is marked, else the one in sight; of the ranks in sight. */
  function csv() {
    var window_ = marked || [shown.from, shown.to];
    var rows = visible(dom.scroll.clientHeight).map(function (group) { return group.first + "-" + (group.first + group.count - 1); });
    save(address("/spans.csv", { from: Math.max(0, Math.floor(window_[0])), to: Math.max(1, Math.ceil(window_[1])), rows: rows.join(",") }), "timeline-" + chart.job + ".csv");
  }

  var BUTTONS = {
    "timeline-fit": fit, "timeline-in": function () { zoom(2, null); }, "timeline-out": function () { zoom(0.5, null); },
    "timeline-fold": foldAll, "timeline-png": png, "timeline-csv": csv, "timeline-help": help,
    "timeline-order": function () { change({ order: order === "finish" ? null : "finish", top: null }); },
    "timeline-keys-close": function () { element("timeline-keys").close(); },
  };

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("#timeline-page button");
    if (!button || !chart || !chart.ready) return;
    if (BUTTONS[button.id]) BUTTONS[button.id]();
    else if (button.hasAttribute("data-category")) toggle(Number(button.getAttribute("data-category")));
  });
  document.addEventListener("keydown", pressed);

  /* ---- the page ---- */

  var observer = new ResizeObserver(function () {
    if (dom && chart && chart.ready && chart.list) arrange(window.studioView.read().top);
    draw();
  });

  function mount() {
    var scroll = element("timeline-scroll");
    if (!scroll || (dom && dom.scroll === scroll)) return Boolean(scroll);
    observer.disconnect();
    scroll.textContent = "";
    var canvas = document.createElement("canvas"), spacer = document.createElement("div");
    canvas.setAttribute("aria-hidden", "true");
    scroll.appendChild(canvas);
    scroll.appendChild(spacer);
    dom = { scroll: scroll, canvas: canvas, spacer: spacer, status: element("timeline-status"), detail: element("timeline-detail") };
    topShown = "";
    pointer = drag = hover = null;
    fingers.clear();
    canvas.addEventListener("pointerdown", down);
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", function () {
      pointer = hover = null;
      draw();
    });
    scroll.addEventListener("wheel", wheel, { passive: false });
    scroll.addEventListener("scroll", scrolled);
    observer.observe(scroll);
    return true;
  }

  function follow(view, source) {
    if (!source || source.job !== view.job || !mount()) return;
    if (!chart || chart.job !== source.job || chart.run !== source.run) load(source.job, source.run);
    else apply();
  }

  /* For tests and measurements: where a moment of a row is drawn, and what was drawn last. */
  window.studioTimeline = {
    point: function (row, at) {
      measure();
      var place = placeOfRow(row), box = dom.canvas.getBoundingClientRect();
      return { x: box.left + x(at), y: box.top + place.y + place.height / 2 };
    },
    stats: function () {
      return Object.assign({ bytes: keptBytes, tiles: tiles.size, from: shown.from, to: shown.to, level: zoomLevel() }, stats);
    },
  };

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.studio_timeline = {
    follow: function (view, source) {
      follow(view, source);
      return window.dash_clientside.no_update;
    },
    found: function (source, view) {
      follow(view, source);
      return window.dash_clientside.no_update;
    },
    theme: function () {
      if (chart && chart.ready && dom) {
        dress();
        draw();
      }
      return window.dash_clientside.no_update;
    },
    pickRun: function (value, source) {
      if (source && value !== null && value !== undefined && value !== (source.run || "recorded")) {
        change({ run: value === "recorded" ? "recorded" : value, from: null, to: null, mark: null });
      }
      return window.dash_clientside.no_update;
    },
  };
})();
