/* Comparison: runs chosen with one click on any page, and their timelines on one time axis. What is drawn comes as the
   tiles of studio/server/timeline.py; words and numbers are those of the Timeline page's scripts. */
(function () {
  "use strict";

  var GUTTER = 92, AXIS = 24, HEAD = 18, ROW = 12, THIN = 4, GAP = 6, OPEN_AT_MOST = 4, KEPT = 600;
  var TOKENS = ["--cs-compute", "--cs-collective", "--cs-p2p", "--cs-p2p", "--cs-memory", "--cs-host"];
  var LETTERS = "ABCDEFGH";

  var dom = null, sides = [], key = "", offsets = [], shown = { from: 0, to: 1 }, windowKey = null;
  var mode = "beside", list = [], top_ = 0, high = 0, frame = 0, look = null, selected = null, selectedKey = "";
  var pointer = null, drag = null, toggled = {}, clock = 0, names = {};

  function kit() { return window.studioTimeline; }
  function element(id) { return document.getElementById(id); }
  var later = window.studioTimers();
  function say(text) { var node = element("compare-status"); if (node && node.textContent !== text) node.textContent = text; }
  function change(patch, options) { window.studioView.change(patch, options); }
  function signed(ns) { return (ns > 0 ? "+" : ns < 0 ? "−" : "") + kit().time(Math.abs(ns)); }

  /* ---- what is drawn ---- */

  function load(wanted) {
    var mine = wanted.map(function (one, at) {
      return { at: at, job: one[0], run: one[1] === "recorded" ? "" : one[1], tiles: new Map(), asked: new Set(), ready: false };
    });
    sides = mine;
    selected = null;
    selectedKey = "";
    windowKey = null;
    toggled = {};
    dom.host.removeAttribute("data-ready");
    later("slow", 300, function () { if (sides === mine && !all()) say("Reading the timelines…"); });
    mine.forEach(function (side) {
      kit().get(address(side, "", {})).then(function (answer) { return answer.arrayBuffer(); }).then(function (buffer) {
        if (sides !== mine) return;
        Object.assign(side, window.studioUnpacked(buffer), { ready: true });
        prepare(side);
        if (all()) {
          say("");
          arrange();
          follow();
        }
      }).catch(function (error) {
        if (sides === mine) say(LETTERS[side.at] + " cannot be drawn: " + ((error && error.message) || "the studio does not answer."));
      });
    });
  }

  function all() { return sides.length > 1 && sides.every(function (side) { return side.ready; }); }

  function address(side, path, more) {
    return window.studioView.address("/api/jobs/" + encodeURIComponent(side.job) + "/timeline" + path, Object.assign({ run: side.run }, more));
  }

  /* Rows of a rank by what they are: the n-th comm group of one side stands where the n-th of another does. */
  function prepare(side) {
    side.top = Math.max(1, Math.ceil(Math.log2(side.span / side.bins)));
    side.rows = new Map();
    for (var row = 0; row < side.rank.length; row++) {
      var rank = side.rank[row];
      if (!side.rows.has(rank)) side.rows.set(rank, { slots: new Map(), lanes: {} });
      var mine = side.rows.get(rank), lane = side.kind[row] + "/" + side.name[row];
      if (!(lane in mine.lanes)) {
        var before = Object.keys(mine.lanes).filter(function (one) { return one.split("/")[0] === String(side.kind[row]); });
        mine.lanes[lane] = before.length;
      }
      mine.slots.set([side.kind[row], mine.lanes[lane], side.level[row]].join("/"), row);
    }
    side.finish_of = new Map();
    side.ranks.forEach(function (rank, at) { side.finish_of.set(rank, side.finish[at]); });
  }

  function kinds(slot) {
    var order = ["compute", "stream", "communication", "memory", "cpu", "thread"], parts = slot.split("/").map(Number);
    return order.indexOf(sides[0].kinds[parts[0]]) * 1e6 + parts[1] * 1e3 + parts[2];
  }

  function arrange() {
    var ranks = [];
    sides.forEach(function (side) { side.rows.forEach(function (_, rank) { if (ranks.indexOf(rank) < 0) ranks.push(rank); }); });
    ranks.sort(function (a, b) { return a - b; });
    var usual = ranks.length > OPEN_AT_MOST, y = 0;
    list = ranks.map(function (rank) {
      var slots = new Set();
      sides.forEach(function (side) { if (side.rows.has(rank)) side.rows.get(rank).slots.forEach(function (_, slot) { slots.add(slot); }); });
      var folded = usual !== Boolean(toggled[rank]), lanes = mode === "overlay" ? sides.length : 1;
      var pitch = (folded ? THIN : ROW) * (lanes > 1 ? Math.max((folded ? 0.75 : 0.6) * lanes, 1) : 1) + (lanes > 1 ? 2 : 0);
      var one = { rank: rank, y: y, slots: Array.from(slots).sort(function (a, b) { return kinds(a) - kinds(b); }), folded: folded, pitch: pitch };
      one.height = Math.max(one.slots.length * pitch, 13);
      y += one.height + GAP;
      return one;
    });
    high = y;
    draw();
  }

  function panes() {
    var height = dom.canvas.clientHeight - AXIS;
    if (mode === "overlay") return [{ sides: sides, top: AXIS, height: height }];
    return sides.map(function (side, at) {
      return { sides: [side], top: AXIS + (at * height) / sides.length, height: height / sides.length };
    });
  }

  function offset(side) { return (offsets[side.at] || 0) - (offsets[0] || 0); }

  function whole() {
    var from = Math.min.apply(null, sides.map(function (side) { return -offset(side); }));
    var to = Math.max.apply(null, sides.map(function (side) { return side.span - offset(side); }));
    var margin = (to - from) * 0.01;
    return { from: from - margin, to: to + margin };
  }

  function clamp(from, to) {
    var every = whole(), wide = Math.min(Math.max(to - from, 20), every.to - every.from), middle = (from + to) / 2;
    from = Math.min(Math.max(middle - wide / 2, every.from), every.to - wide);
    return { from: from, to: from + wide };
  }

  function width() { return dom.canvas.clientWidth - GUTTER; }
  function x(ns) { return GUTTER + ((ns - shown.from) / (shown.to - shown.from)) * width(); }
  function ns(px) { return shown.from + ((px - GUTTER) / width()) * (shown.to - shown.from); }

  /* ---- tiles ---- */

  function level(side) {
    var per = (shown.to - shown.from) / (width() * (window.devicePixelRatio || 1));
    return Math.min(side.top, Math.max(0, Math.ceil(Math.log2(per))));
  }

  function span(side, one) { return Math.pow(2, one) * side.bins; }

  function tile(side, at, index, row) {
    var found = side.tiles.get(at + "/" + index + "/" + row);
    if (found) found.used = clock;
    return found;
  }

  function want(side, at, index, rows) {
    rows = rows.filter(function (row) { return !side.asked.has(at + "/" + index + "/" + row); }).slice(0, 512);
    if (!rows.length || side.asked.size > 4000) return;
    rows.sort(function (a, b) { return a - b; });
    rows.forEach(function (row) { side.asked.add(at + "/" + index + "/" + row); });
    var parts = [];
    rows.forEach(function (row) {
      var last = parts[parts.length - 1];
      if (last && last[1] === row - 1) last[1] = row;
      else parts.push([row, row]);
    });
    var text = parts.map(function (part) { return part[0] === part[1] ? part[0] : part.join("-"); }).join(",");
    kit().get(address(side, "/tile", { level: at, tile: index, rows: text })).then(function (answer) { return answer.arrayBuffer(); }).then(function (buffer) {
      var found = window.studioUnpacked(buffer), place = new Map();
      found.binned.forEach(function (one, line) { place.set(one, line); });
      rows.forEach(function (row, line) {
        side.tiles.set(at + "/" + index + "/" + row, {
          found: found, begin: index * span(side, at), bin: Math.pow(2, at), low: found.bars[line], high: found.bars[line + 1],
          binned: place.has(line) ? place.get(line) : -1, strip: null, dressed: null, used: clock,
        });
      });
      forget(side);
    }).catch(function (error) {
      say((error && error.message) || "The studio does not answer. Is it still running?");
      return new Promise(function (again) { window.setTimeout(again, 2000); });
    }).finally(function () {
      rows.forEach(function (row) { side.asked.delete(at + "/" + index + "/" + row); });
      draw();
    });
  }

  function forget(side) {
    if (side.tiles.size < KEPT * sides.length) return;
    Array.from(side.tiles.entries()).sort(function (a, b) { return a[1].used - b[1].used; })
      .slice(0, side.tiles.size / 3).forEach(function (entry) { if (entry[1].used < clock - 1) side.tiles.delete(entry[0]); });
  }

  /* ---- colours ---- */

  function dress() {
    var style = getComputedStyle(document.documentElement);
    var name = document.documentElement.getAttribute("data-mantine-color-scheme");
    if (look && look.name === name) return;
    function token(one) { return style.getPropertyValue(one).trim(); }
    look = { name: name, bg: token("--cs-bg"), panel: token("--cs-panel"), raised: token("--cs-raised"), border: token("--cs-border"), text: token("--cs-text"),
      dim: token("--cs-dim"), accent: token("--cs-accent"), font: token("--cs-font"), better: token("--cs-better"), worse: token("--cs-worse"),
      fills: TOKENS.map(token) };
    look.words = look.fills.map(function (one) {
      return [1, 3, 5].map(function (at) { return parseInt(one.slice(at, at + 2), 16); });
    });
  }

  /* A row of a tile as a line of pixels: how busy each bin was in the colours of what kept it busy, or its single bars. */
  function strip(one) {
    if (one.strip && one.dressed === look.name) return one.strip;
    var bins = 1024, wide = one.binned >= 0 ? bins : 2 * bins, found = one.found;
    var image = document.createElement("canvas");
    image.width = wide;
    image.height = 1;
    var pen = image.getContext("2d"), pixels = pen.createImageData(wide, 1);
    if (one.binned >= 0) {
      var sums = new Float32Array(4 * wide);
      found.strip.forEach(function (place, line) {
        if (place !== one.binned) return;
        var colour = look.words[found.strip_category[line]];
        for (var bin = 0; bin < bins; bin++) {
          var share = found.fraction[line * bins + bin];
          for (var part = 0; part < 3; part++) sums[4 * bin + part] += share * colour[part];
          sums[4 * bin + 3] += share;
        }
      });
      for (var at = 0; at < bins; at++) {
        var sum = sums[4 * at + 3];
        if (!sum) continue;
        for (var part = 0; part < 3; part++) pixels.data[4 * at + part] = sums[4 * at + part] / sum;
        pixels.data[4 * at + 3] = 36 + (Math.min(sum, 255) * 219) / 255;
      }
    } else {
      var scale = wide / (one.bin * bins);
      for (var bar = one.low; bar < one.high; bar++) {
        var begin = Math.max(0, Math.floor(found.start[bar] * scale)), end = Math.min(wide, Math.max(begin + 1, Math.round(found.end[bar] * scale)));
        if (end - begin > 6) end -= 1;
        for (var to = begin; to < end; to++) {
          pixels.data.set(look.words[found.category[bar]], 4 * to);
          pixels.data[4 * to + 3] = 255;
        }
      }
    }
    pen.putImageData(pixels, 0, 0);
    one.strip = image;
    one.dressed = look.name;
    return image;
  }

  /* ---- drawing ---- */

  function draw() { if (!frame) frame = window.requestAnimationFrame(render); }

  function render() {
    frame = 0;
    if (!dom || !dom.canvas.isConnected || !all()) return;
    dress();
    clock++;
    var ratio = window.devicePixelRatio || 1, wide = dom.canvas.clientWidth, tall = dom.canvas.clientHeight;
    if (dom.canvas.width !== Math.round(wide * ratio) || dom.canvas.height !== Math.round(tall * ratio)) {
      dom.canvas.width = Math.round(wide * ratio);
      dom.canvas.height = Math.round(tall * ratio);
    }
    var pen = dom.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.imageSmoothingEnabled = false;
    var missing = paint(canvasPen(pen), wide, tall);
    missing.forEach(function (rows, place) {
      var parts = place.split("/");
      want(sides[parts[0]], Number(parts[1]), Number(parts[2]), Array.from(rows));
    });
    dom.host.toggleAttribute("data-ready", !missing.size);
  }

  /* What draws: the same calls paint the canvas and write an SVG. */
  function canvasPen(pen) {
    return {
      rect: function (left, y, wide, tall, fill) { pen.fillStyle = fill; pen.fillRect(left, y, wide, tall); },
      frame: function (left, y, wide, tall, stroke) { pen.strokeStyle = stroke; pen.lineWidth = 2; pen.strokeRect(left, y, wide, tall); },
      text: function (text, left, y, fill, anchor, weight) {
        pen.font = (weight || 400) + " 11px " + look.font;
        pen.fillStyle = fill;
        pen.textAlign = anchor || "left";
        pen.textBaseline = "middle";
        pen.fillText(text, left, y);
      },
      image: function (one, first, count, left, y, wide, tall) { pen.drawImage(strip(one), first, 0, count, 1, left, y, wide, tall); },
      clip: function (left, y, wide, tall) { pen.save(); pen.beginPath(); pen.rect(left, y, wide, tall); pen.clip(); },
      end: function () { pen.restore(); },
    };
  }

  function paint(pen, wide, tall) {
    var missing = new Map();
    pen.rect(0, 0, wide, tall, look.bg);
    panes().forEach(function (pane) {
      pen.clip(0, pane.top, wide, pane.height);
      pane.sides.forEach(function (side) { ground(pen, side, pane); });
      ticks().forEach(function (one) { pen.rect(one[0], pane.top, 1, pane.height, look.raised); });
      visible(pane).forEach(function (one, count) {
        if (count) pen.rect(0, heightOf(pane, one) - GAP / 2, wide, 1, look.raised);
        pane.sides.forEach(function (side, lane) { lanes(pen, side, pane, one, lane, missing); });
      });
      ring(pen, pane);
      labels(pen, pane, wide);
      pen.end();
      pen.rect(0, pane.top, wide, 1, look.border);
    });
    axis(pen, wide, tall);
    return missing;
  }

  function inner(pane) { return pane.top + HEAD; }
  function heightOf(pane, one) { return inner(pane) + one.y - top_; }

  function visible(pane) {
    return list.filter(function (one) { return heightOf(pane, one) + one.height > inner(pane) && heightOf(pane, one) < pane.top + pane.height; });
  }

  /* After its finish a run is over: the ground says so. */
  function ground(pen, side, pane) {
    var end = x(side.span - offset(side)), begin = x(-offset(side));
    if (mode === "overlay") return;
    if (end < dom.canvas.clientWidth) pen.rect(Math.max(end, GUTTER), pane.top, dom.canvas.clientWidth, pane.height, look.raised);
    if (begin > GUTTER) pen.rect(GUTTER, pane.top, begin - GUTTER, pane.height, look.raised);
  }

  function lanes(pen, side, pane, one, lane, missing) {
    var mine = side.rows.get(one.rank);
    if (!mine) return;
    var at = level(side), size = span(side, at), move = offset(side);
    var low = Math.max(0, Math.floor((shown.from + move) / size)), last = Math.floor(Math.min(shown.to + move, side.span) / size);
    var count = pane.sides.length, tall = count > 1 ? (one.pitch - 2) / count : one.pitch - 1;
    pen.clip(GUTTER, inner(pane), width(), pane.top + pane.height - inner(pane));
    one.slots.forEach(function (slot, place) {
      var row = mine.slots.get(slot);
      if (row === undefined) return;
      var y = heightOf(pane, one) + place * one.pitch + (count > 1 ? lane * tall : 0);
      for (var index = low; index <= last; index++) {
        var found = tile(side, at, index, row);
        if (!found) {
          var group = side.at + "/" + at + "/" + index;
          if (!missing.has(group)) missing.set(group, new Set());
          missing.get(group).add(row);
          for (var up = 1; !found && at + up <= side.top; up++) found = tile(side, at + up, Math.floor(index / Math.pow(2, up)), row);
        }
        if (found) rowOf(pen, found, y, Math.max(tall - (count > 1 ? 0.5 : 0), 1), Math.max(index * size, shown.from + move), Math.min((index + 1) * size, shown.to + move), move);
      }
    });
    pen.end();
  }

  function rowOf(pen, one, y, tall, from, to, move) {
    if (one.binned < 0 && one.low === one.high) return;
    if (one.binned >= 0 || tall < 8) {
      var count = one.binned >= 0 ? 1024 : 2048, bin = (one.bin * 1024) / count;
      var first = Math.max(0, Math.floor((from - one.begin) / bin)), last = Math.min(count, Math.ceil((to - one.begin) / bin));
      if (last <= first) return;
      var left = x(one.begin + first * bin - move);
      pen.image(one, first, last - first, left, y, x(one.begin + last * bin - move) - left, tall);
      return;
    }
    var found = one.found;
    for (var bar = one.low; bar < one.high; bar++) {
      var begin = Math.max(one.begin + found.start[bar], from), end = Math.min(one.begin + found.end[bar], to);
      if (end < from || begin > to || end < begin) continue;
      var start = x(begin - move), long = Math.max(x(end - move) - start - (x(end - move) - start > 3 ? 1 : 0), 0.8);
      pen.rect(start, y, long, tall, look.fills[found.category[bar]]);
    }
  }

  function labels(pen, pane, wide) {
    pen.rect(0, pane.top, GUTTER, pane.height, look.panel);
    visible(pane).forEach(function (one) {
      var y = heightOf(pane, one) + Math.min(one.height, 13) / 2;
      if (y > inner(pane) + 4) pen.text((one.folded ? "▸ " : "▾ ") + "rank " + one.rank, 8, y, look.dim);
    });
    pen.rect(0, pane.top, wide, HEAD, look.panel);
    var y = pane.top + HEAD / 2 + 0.5, left = 8;
    if (pane.sides.length > 1) {
      var letters = pane.sides.map(function (side) { return LETTERS[side.at]; });
      pen.text("in each lane, from above: " + letters.join(", "), wide - 10, y, look.dim, "right");
    }
    /* Where names of several sides do not fit beside each other, letters do: whose they are stands above. */
    var needed = pane.sides.reduce(function (sum, side) { return sum + (names[side.at] || "").length * 6.6 + 210; }, left);
    var lettered = mode === "overlay" && needed > wide - 200;
    pane.sides.forEach(function (side) {
      var finish = kit().time(side.span), text = LETTERS[side.at] + (lettered ? "" : "  " + (names[side.at] || ""));
      pen.text(text, left, y, look.text, "left", 600);
      var told = "finish " + finish;
      if (side.at) told += "  " + (side.span === sides[0].span ? "= A" : signed(side.span - sides[0].span));
      var colour = side.at === 0 || side.span === sides[0].span ? look.dim : side.span > sides[0].span ? look.worse : look.better;
      left += text.length * 6.6 + 14;
      pen.text(told, left, y, colour);
      left += told.length * 6.2 + 26;
    });
    pane.sides.forEach(function (side) {
      var end = x(side.span - offset(side));
      if (end < GUTTER || end > wide) return;
      pen.rect(end, inner(pane), 1, pane.height - HEAD, side.at && side.span > sides[0].span ? look.worse : side.at && side.span < sides[0].span ? look.better : look.dim);
      if (mode === "overlay") pen.text(LETTERS[side.at], end + 4, inner(pane) + 8, look.text, "left", 600);
    });
  }

  function ticks() {
    var count = Math.max(2, Math.floor(width() / 130)), raw = (shown.to - shown.from) / count, step = Math.pow(10, Math.floor(Math.log10(raw)));
    step *= raw / step > 5 ? 10 : raw / step > 2 ? 5 : raw / step > 1 ? 2 : 1;
    var found = [];
    for (var at = Math.ceil(shown.from / step) * step; at <= shown.to; at += step) if (x(at) >= GUTTER) found.push([x(at), tick(at, step)]);
    return found;
  }

  function axis(pen, wide, tall) {
    pen.rect(0, 0, wide, AXIS, look.panel);
    pen.text(offsets.some(function (one) { return one; }) ? "time of A" : "time", 8, AXIS / 2, look.dim);
    ticks().forEach(function (one) {
      pen.rect(one[0], AXIS - 5, 1, 5, look.border);
      if (one[0] + 4 + 6.4 * one[1].length < wide) pen.text(one[1], one[0] + 4, AXIS / 2, look.dim);
    });
    if (pointer && pointer.x > GUTTER && !drag) pen.rect(pointer.x, AXIS, 1, tall - AXIS, look.dim);
  }

  function tick(at, step) {
    var units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]], size = Math.max(Math.abs(shown.from), Math.abs(shown.to));
    var unit = units.find(function (one) { return size >= one[0]; }) || units[3];
    var decimals = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
    if (Math.abs(at) < step / 2) return "0";
    return (at / unit[0]).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + " " + unit[1];
  }

  function ring(pen, pane) {
    if (!selected) return;
    pane.sides.forEach(function (side, lane) {
      var bar = selected[side.at];
      if (!bar || bar.row === null) return;
      var place = placeOf(side, bar.row);
      if (!place) return;
      var count = pane.sides.length, tall = count > 1 ? (place.one.pitch - 2) / count : place.one.pitch - 1;
      var y = heightOf(pane, place.one) + place.at * place.one.pitch + (count > 1 ? lane * tall : 0);
      if (y < inner(pane) - tall) return;
      var left = x(bar.start - offset(side)), right = x(bar.end - offset(side));
      if (right < GUTTER || left > dom.canvas.clientWidth) return;
      left = Math.max(left, GUTTER);
      pen.frame(left - 1.5, y - 1.5, Math.max(right - left, 2) + 3, Math.max(tall, 3) + 3, look.accent);
    });
  }

  function placeOf(side, row) {
    var one = list.find(function (entry) { return entry.rank === side.rank[row]; });
    if (!one) return null;
    var at = one.slots.findIndex(function (slot) { return side.rows.get(one.rank).slots.get(slot) === row; });
    return at < 0 ? null : { one: one, at: at };
  }

  /* ---- hands ---- */

  function under(event) {
    var box = dom.canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    var pane = panes().find(function (one) { return py >= one.top && py < one.top + one.height; });
    var found = { x: px, y: py, pane: pane, one: null, side: null, row: -1 };
    if (!pane || py < inner(pane)) return found;
    found.one = list.find(function (one) { return py >= heightOf(pane, one) && py < heightOf(pane, one) + one.height + GAP / 2; }) || null;
    if (!found.one || px < GUTTER) return found;
    var inside = py - heightOf(pane, found.one), at = Math.floor(inside / found.one.pitch);
    var lane = pane.sides.length > 1 ? Math.floor((inside - at * found.one.pitch) / ((found.one.pitch - 2) / pane.sides.length)) : 0;
    found.side = pane.sides[Math.min(lane, pane.sides.length - 1)];
    var mine = found.side.rows.get(found.one.rank), row = mine && found.one.slots[at] !== undefined ? mine.slots.get(found.one.slots[at]) : undefined;
    found.row = row === undefined ? -1 : row;
    return found;
  }

  function ask(found) {
    var side = found.side, within = Math.ceil(((shown.to - shown.from) / width()) * 3), at = Math.round(ns(found.x) + offset(side));
    if (at < 0 && at + within >= 0) at = 0;
    if (at < 0) return Promise.resolve(null);
    return kit().get(address(side, "/node", { row: found.row, at: at, within: within })).then(function (answer) { return answer.json(); }).then(function (answer) { return answer.bar; });
  }

  function hover(found) {
    if (!found.side || found.row < 0) {
      if (!selected) say("");
      return;
    }
    later("hover", 60, function () {
      var mine = sides;
      ask(found).then(function (bar) {
        if (mine !== sides || !pointer || pointer.x !== found.x) return;
        if (!bar) return say(LETTERS[found.side.at] + " · rank " + found.one.rank + " · nothing runs here");
        say(LETTERS[found.side.at] + " · rank " + bar.rank + " · " + bar.name + (bar.bytes ? " · " + kit().scaled(bar.bytes, kit().SIZES) : "") + " · begins " + kit().time(bar.start) + " · takes " + kit().time(bar.end - bar.start));
      }).catch(function () {});
    });
  }

  function click(found) {
    if (!found.one) return;
    if (found.x < GUTTER) {
      toggled[found.one.rank] = !toggled[found.one.rank];
      return arrange();
    }
    if (!found.side || found.row < 0) return;
    ask(found).then(function (bar) {
      if (bar) select(found.side.at, bar.rank, bar.node);
    }).catch(function (error) { say((error && error.message) || "The studio does not answer."); });
  }

  /* A node on every side; the address holds the one of A, which the inspector shows. */
  function select(side, rank, node) {
    var mine = sides, text = sides.map(function (one) { return one.job + "/" + (one.run || "recorded"); }).join(",");
    var url = window.studioView.address("/api/compare/node", { sides: text, side: side || "0", rank: String(rank), node: node });
    return kit().get(url).then(function (answer) { return answer.json(); }).then(function (answer) {
      if (mine !== sides) return;
      selected = answer.sides;
      var first = selected[0];
      selectedKey = first ? first.rank + "/" + first.node : "";
      change({ rank: first ? first.rank : null, node: first ? first.node : null });
      say(told());
      draw();
    });
  }

  function told() {
    var base = selected[0], parts = [], some = selected.find(Boolean);
    selected.forEach(function (bar, at) {
      if (!bar) parts.push("not in " + LETTERS[at]);
      else if (bar.start === null) parts.push(LETTERS[at] + " has no time for it");
      else {
        var takes = bar.end - bar.start, text = LETTERS[at] + " takes " + kit().time(takes);
        if (at && base && base.start !== null) text += " (" + (takes === base.end - base.start ? "= A" : signed(takes - (base.end - base.start))) + ")";
        parts.push(text);
      }
    });
    return "rank " + some.rank + " · " + some.name + " · " + parts.join(" · ");
  }

  function zoom(factor, at) {
    var middle = at === undefined || at < GUTTER ? (shown.from + shown.to) / 2 : ns(at);
    shown = clamp(middle - (middle - shown.from) * factor, middle + (shown.to - middle) * factor);
    moved();
  }

  function pan(share) {
    var by = (shown.to - shown.from) * share;
    shown = clamp(shown.from + by, shown.to + by);
    moved();
  }

  function scroll(by) {
    var pane = panes()[0], most = Math.max(0, high - (pane.height - HEAD));
    var next = Math.min(Math.max(0, top_ + by), most), went = next !== top_;
    top_ = next;
    draw();
    return went;
  }

  function moved() {
    draw();
    later("rest", 250, function () {
      if (!all() || drag) return;
      var every = whole(), fits = shown.to - shown.from >= (every.to - every.from) * 0.9999;
      var patch = { from: fits ? null : Math.round(shown.from), to: fits ? null : Math.round(shown.to) };
      windowKey = fits ? "/" : patch.from + "/" + patch.to;
      change(patch, { replace: true });
    });
  }

  function fit() {
    shown = whole();
    moved();
  }

  function focusSelected() {
    var bars = (selected || []).map(function (bar, at) { return bar && bar.start !== null ? [bar.start - offset(sides[at]), bar.end - offset(sides[at])] : null; }).filter(Boolean);
    if (!bars.length) return fit();
    var from = Math.min.apply(null, bars.map(function (one) { return one[0]; })), to = Math.max.apply(null, bars.map(function (one) { return one[1]; }));
    shown = clamp(from - (to - from) * 1.5 - 10, to + (to - from) * 1.5 + 10);
    moved();
  }

  var KEYS = {
    w: function () { zoom(0.7, pointer && pointer.x); }, s: function () { zoom(1 / 0.7, pointer && pointer.x); },
    a: function () { pan(-0.2); }, d: function () { pan(0.2); }, ArrowLeft: function () { pan(-0.2); }, ArrowRight: function () { pan(0.2); },
    ArrowUp: function () { scroll(-40); }, ArrowDown: function () { scroll(40); }, "+": function () { zoom(0.7); }, "-": function () { zoom(1 / 0.7); },
    0: fit, f: focusSelected, Escape: function () { selected = null; selectedKey = ""; say(""); change({ rank: null, node: null }); draw(); },
  };

  function wire(host) {
    var canvas = document.createElement("canvas");
    host.appendChild(canvas);
    dom = { host: host, canvas: canvas };
    window.studioExport.register("compare-canvas", {
      png: function () { return new Promise(function (done) { canvas.toBlob(done); }); },
      svg: function () { return Promise.resolve(svg()); },
      table: spans,
    });
    canvas.addEventListener("wheel", function (event) {
      if (event.ctrlKey || event.shiftKey || event.metaKey) {
        zoom(Math.exp((event.deltaY || event.deltaX) * 0.0016), event.offsetX);
        event.preventDefault();
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        pan(event.deltaX / width());
        event.preventDefault();
      } else if (scroll(event.deltaY)) event.preventDefault();
      /* The pointer rests, and something else lies under it now. */
      if (!all() || !event.defaultPrevented) return;
      pointer = under(event);
      hover(pointer);
    }, { passive: false });
    var fingers = new Map();

    /* Two fingers keep the moments they lie on. */
    function pinch(event) {
      var other = Array.from(fingers.keys()).find(function (id) { return id !== event.pointerId; });
      var before = fingers.get(event.pointerId), still = fingers.get(other), box = canvas.getBoundingClientRect();
      var was = Math.abs(before - still), is = Math.abs(event.clientX - still);
      fingers.set(event.pointerId, event.clientX);
      if (was > 8 && is > 8) zoom(was / is, (event.clientX + still) / 2 - box.left);
    }

    canvas.addEventListener("pointerdown", function (event) {
      if (event.button || !all()) return;
      if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX);
      if (fingers.size > 1) {
        drag = null;
        return;
      }
      host.focus({ preventScroll: true });
      drag = { x: event.clientX, y: event.clientY, from: shown.from, to: shown.to, top: top_, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      if (!all()) return;
      if (fingers.size > 1 && fingers.has(event.pointerId)) return pinch(event);
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event.clientX);
      var found = under(event);
      pointer = found;
      if (drag) {
        var dx = event.clientX - drag.x, dy = event.clientY - drag.y;
        drag.moved = drag.moved || Math.abs(dx) + Math.abs(dy) > 4;
        if (!drag.moved) return;
        var by = (dx / width()) * (drag.to - drag.from);
        shown = clamp(drag.from - by, drag.to - by);
        top_ = drag.top;
        scroll(-dy);
        return;
      }
      hover(found);
      draw();
    });
    function release(event) {
      fingers.delete(event.pointerId);
      if (!drag) return;
      var was = drag;
      drag = null;
      if (was.moved) moved();
      else if (event.type === "pointerup") click(under(event));
    }
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", function () { pointer = null; draw(); });
    host.addEventListener("keydown", function (event) {
      var act = KEYS[event.key] || KEYS[event.key.toLowerCase()];
      if (!act || event.ctrlKey || event.metaKey || event.altKey || !all()) return;
      event.preventDefault();
      act();
    });
    new ResizeObserver(function () { draw(); }).observe(host);
    [["compare-fit", fit], ["compare-in", function () { zoom(0.7); }], ["compare-out", function () { zoom(1 / 0.7); }],
      ["compare-beside", function () { change({ layout: null }); }], ["compare-overlay", function () { change({ layout: "overlay" }); }],
      ["compare-swap", swap], ["compare-pin", pin]].forEach(function (pair) {
      var button = element(pair[0]);
      if (button) button.addEventListener("click", function () { pair[1](); });
    });
  }

  /* What every side has of the ranks in sight, within the window that is shown. */
  function spans() {
    var ranks = new Set(visible(panes()[0]).map(function (one) { return one.rank; }));
    return Promise.all(sides.map(function (side) {
      var rows = [], move = offset(side);
      for (var row = 0; row < side.rank.length; row++) if (ranks.has(side.rank[row])) rows.push(row);
      var window_ = { from: Math.max(0, Math.floor(shown.from + move)), to: Math.max(1, Math.ceil(shown.to + move)), rows: rows.join(",") };
      return kit().get(address(side, "/spans.csv", window_)).then(function (answer) { return answer.text(); }).then(function (text) {
        var found = window.studioExport.parsed(text), head = found.shift();
        return { head: ["side", "run"].concat(head), rows: found.map(function (line) { return [LETTERS[side.at], names[side.at] || ""].concat(line); }) };
      });
    })).then(function (parts) {
      return { head: parts[0].head, rows: [].concat.apply([], parts.map(function (part) { return part.rows; })) };
    });
  }

  function plain(text) {
    return String(text).replace(/[&<>"]/g, function (one) { return { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[one]; });
  }

  function svg() {
    var wide = dom.canvas.clientWidth, tall = dom.canvas.clientHeight, out = [], clips = 0;
    function r(value) { return Math.round(value * 100) / 100; }
    paint({
      rect: function (left, y, w, h, fill) { out.push('<rect x="' + r(left) + '" y="' + r(y) + '" width="' + r(Math.max(w, 0)) + '" height="' + r(Math.max(h, 0)) + '" fill="' + fill + '"/>'); },
      frame: function (left, y, w, h, stroke) { out.push('<rect x="' + r(left) + '" y="' + r(y) + '" width="' + r(w) + '" height="' + r(h) + '" fill="none" stroke-width="2" stroke="' + stroke + '"/>'); },
      text: function (text, left, y, fill, anchor, weight) { out.push('<text x="' + r(left) + '" y="' + r(y + 4) + '" fill="' + fill + '" font-size="11" text-anchor="' + (anchor === "right" ? "end" : "start") + '" font-weight="' + (weight || 400) + '" font-family="sans-serif" xml:space="preserve">' + plain(text) + "</text>"); },
      image: function (one, first, count, left, y, w, h) {
        /* Neighbours of one colour are one rectangle. */
        var pixels = strip(one).getContext("2d").getImageData(first, 0, count, 1).data, at = 0;
        while (at < count) {
          var begin = at, word = [0, 1, 2, 3].map(function (part) { return pixels[4 * begin + part]; });
          while (at < count && word.every(function (value, part) { return pixels[4 * at + part] === value; })) at++;
          if (word[3]) this.rect(left + (begin / count) * w, y, ((at - begin) / count) * w, h, "rgb(" + word.slice(0, 3) + ')" fill-opacity="' + r(word[3] / 255));
        }
      },
      clip: function (left, y, w, h) { clips++; out.push('<clipPath id="c' + clips + '"><rect x="' + r(left) + '" y="' + r(y) + '" width="' + r(w) + '" height="' + r(Math.max(h, 0)) + '"/></clipPath><g clip-path="url(#c' + clips + ')">'); },
      end: function () { out.push("</g>"); },
    }, wide, tall);
    return '<svg xmlns="http://www.w3.org/2000/svg" width="' + wide + '" height="' + tall + '" viewBox="0 0 ' + wide + " " + tall + '">' + out.join("\n") + "</svg>";
  }

  /* ---- the view ---- */

  function named(side) { return side.job + "/" + (side.run || "recorded"); }

  function swap() {
    if (sides.length < 2) return;
    var rest = [sides[0]].concat(sides.slice(2)).map(named).join(",");
    change({ job: sides[1].job, run: sides[1].run || "recorded", with: rest, pair: null, align: null, from: null, to: null, rank: null, node: null });
  }

  function pin() {
    var first = selected && selected[0];
    if (!first) return say("Select a node that A has: its beginning is what the others are aligned by.");
    change({ align: "node:" + first.rank + "." + first.node, from: null, to: null });
  }

  function follow() {
    if (!all() || !dom) return;
    var view = window.studioView.read(), wanted = (view.from || "") + "/" + (view.to || "");
    var next = view.layout === "overlay" ? "overlay" : "beside";
    [["compare-beside", "beside"], ["compare-overlay", "overlay"]].forEach(function (pair) {
      var button = element(pair[0]);
      if (button) button.setAttribute("aria-pressed", String(next === pair[1]));
    });
    if (next !== mode) {
      mode = next;
      arrange();
    }
    if (wanted !== windowKey) {
      windowKey = wanted;
      var from = Number(view.from), to = Number(view.to);
      shown = view.to !== undefined && to > from ? clamp(from, to) : whole();
    }
    var node = view.node === undefined || view.node === "" ? "" : (view.rank || sides[0].ranks[0]) + "/" + view.node;
    if (node !== selectedKey) {
      selectedKey = node;
      selected = null;
      if (node) select(0, node.split("/")[0], view.node).catch(function () {});
    }
    draw();
  }

  window.studioCompare = {
    state: function () { return { shown: shown, sides: sides.length, mode: mode, offsets: offsets, ready: all(), selected: selected, top: top_, list: list }; },
    point: function (side, row, at) {
      var place = placeOf(sides[side], row), shownPanes = panes(), pane = mode === "overlay" ? shownPanes[0] : shownPanes[side], box = dom.canvas.getBoundingClientRect();
      var count = pane.sides.length, tall = count > 1 ? (place.one.pitch - 2) / count : place.one.pitch - 1;
      return { x: box.left + x(at - offset(sides[side])), y: box.top + heightOf(pane, place.one) + place.at * place.one.pitch + (count > 1 ? side * tall : 0) + tall / 2 };
    },
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_compare: {
      follow: function (view, source, anchors, theme) {
        var none = window.dash_clientside.no_update, host = element("compare-canvas");
        if (!host || !source || source.sides.length < 2) return none;
        if (!dom || dom.host !== host || !dom.canvas.isConnected) {
          key = "";
          wire(host);
        }
        look = null;
        names = (source.names || []).slice();
        var wanted = JSON.stringify(source.sides);
        if (wanted !== key) {
          key = wanted;
          offsets = source.sides.map(function () { return 0; });
          load(source.sides);
        }
        /* Many sides get what the window has: each shows some ranks at once, and all of them are in sight. */
        host.style.height = Math.min(Math.max(760, window.innerHeight - 150), AXIS + source.sides.length * (mode === "overlay" ? 190 : 210)) + "px";
        if (anchors && JSON.stringify(anchors.sides) === key && anchors.ns.join() !== offsets.join()) {
          offsets = anchors.ns;
          windowKey = null;
        }
        /* The link shall open the same run when there are newer ones. */
        if (!view.run) change({ run: source.sides[0][1] }, { replace: true });
        follow();
        return none;
      },
      add: function (value, source) {
        var none = window.dash_clientside.no_update;
        if (!value) return none;
        var view = window.studioView.read(), parts = value.split("/");
        if (!source || !source.sides.length) change({ job: parts[0], run: parts[1] });
        else {
          var others = source.sides.slice(1).map(function (one) { return one.join("/"); });
          var first = source.sides[0];
          if (first.join("/") !== value && others.indexOf(value) < 0) others.push(value);
          change({ job: view.job || first[0], run: view.run || first[1], with: others.join(",") });
        }
        return null;
      },
      alignBy: function (value) {
        var now = window.studioView.read().align || "start";
        if (value && value !== now) change({ align: value === "start" ? null : value, from: null, to: null });
        return window.dash_clientside.no_update;
      },
    },
  });

  /* ---- chosen on other pages: <button data-compare="job/run" data-compare-name="…"> ---- */

  var BASKET = "studio-compare";

  function basket() {
    try {
      var found = JSON.parse(window.sessionStorage.getItem(BASKET) || "[]");
      return Array.isArray(found) ? found.filter(function (one) { return Array.isArray(one) && one.length === 2; }) : [];
    } catch (error) {
      return [];
    }
  }

  function keep(chosen) {
    try {
      window.sessionStorage.setItem(BASKET, JSON.stringify(chosen));
    } catch (error) {
      /* Without storage the choice lasts as long as the page. */
    }
    tray(chosen);
  }

  function target(chosen) {
    var first = chosen[0][0].split("/");
    return window.studioView.address("/compare", { job: first[0], run: first[1], with: chosen.slice(1).map(function (one) { return one[0]; }).join(",") });
  }

  function tray(chosen) {
    var bar = element("compare-tray");
    if (!bar) {
      bar = document.createElement("div");
      bar.id = "compare-tray";
      bar.className = "cs-compare-tray";
      bar.setAttribute("role", "region");
      bar.setAttribute("aria-label", "Chosen to be compared");
      document.body.appendChild(bar);
    }
    bar.textContent = "";
    bar.hidden = !chosen.length || window.location.pathname === "/compare";
    if (bar.hidden) return;
    chosen.forEach(function (one, at) {
      var chip = document.createElement("button");
      chip.className = "cs-compare-chip";
      chip.title = "Take out: " + one[1];
      chip.textContent = LETTERS[at] + " · " + one[1] + " ×";
      chip.addEventListener("click", function () { keep(basket().filter(function (other) { return other[0] !== one[0]; })); });
      bar.appendChild(chip);
    });
    if (chosen.length < 2) {
      var more = document.createElement("span");
      more.className = "cs-dim";
      more.textContent = "choose another to compare with";
      bar.appendChild(more);
    } else {
      var go = document.createElement("a");
      go.className = "cs-button cs-compare-go";
      go.href = target(chosen);
      go.textContent = "Compare " + chosen.length;
      go.addEventListener("click", function () { keep([]); });
      bar.appendChild(go);
    }
    var clear = document.createElement("button");
    clear.className = "cs-button-quiet";
    clear.textContent = "Clear";
    clear.addEventListener("click", function () { keep([]); });
    bar.appendChild(clear);
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("[data-compare]");
    if (!button) return;
    var chosen = basket(), value = button.getAttribute("data-compare");
    if (!chosen.some(function (one) { return one[0] === value; }) && chosen.length < 8) chosen.push([value, button.getAttribute("data-compare-name") || value]);
    keep(chosen);
  });
  window.addEventListener("_dashprivate_pushstate", function () { window.setTimeout(function () { tray(basket()); }, 0); });
  window.addEventListener("popstate", function () { window.setTimeout(function () { tray(basket()); }, 0); });
  document.addEventListener("DOMContentLoaded", function () { tray(basket()); });
  if (document.readyState !== "loading") tray(basket());
})();
