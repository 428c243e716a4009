/* A heatmap on canvas: rows × columns of any size in the pixels there are, so that no cell is lost from sight.

   window.studioHeatmap.make(host, hands) → {show(data), ring(line, column), wipe()}. `data` is what the server packs (see
   studio/server/collectives.py); `hands` says what clicks, hovering and windows do. Where cells are smaller than pixels a
   pixel shows the strongest of them. */
(function () {
  "use strict";

  var GUTTER = 330, TOP = 30, STRIP = 58, SECTION = 92, LEAST_LABEL = 12, GAP_FROM = 7, NONE = 255;
  var UNITS = {
    bytes: [["B", 1], ["KiB", 1024], ["MiB", 1048576], ["GiB", 1073741824], ["TiB", 1099511627776]],
    ns: [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10]],
    bytes_per_ns: [["B/s", 1e-9], ["kB/s", 1e-6], ["MB/s", 1e-3], ["GB/s", 1], ["TB/s", 1e3]],
  };

  /* Three significant digits with the unit that suits, as studio/units.py prints them. */
  function format(value, unit) {
    if (!isFinite(value)) return "–";
    if (unit === "ratio") return digits(value) + "×";
    /* In the unit of time that was asked for, on every page. */
    if (unit === "ns" && window.studioTimeline && window.studioTimeline.time) return window.studioTimeline.time(value);
    var units = UNITS[unit], size = Math.abs(value), at = 0;
    if (size === 0) return "0 " + units[0][0];
    while (at + 1 < units.length && size >= units[at + 1][1] * 0.9995) at++;
    var shown = size / units[at][1];
    return (value < 0 ? "−" : "") + (at === 0 && units[0][1] === 1 ? String(Math.round(shown * 100) / 100) : digits(shown)) + " " + units[at][0];
  }

  function digits(size) {
    if (size === 0) return "0";
    return size < 9.995 ? size.toFixed(2) : size < 99.95 ? size.toFixed(1) : Math.round(size).toLocaleString("en");
  }

  function rgb(text) {
    return [1, 3, 5].map(function (at) { return parseInt(text.slice(at, at + 2), 16); });
  }

  /* 255 colours along stops; the last code stands for no figure. */
  function ramp(stops) {
    var table = new Uint32Array(256), parts = stops.map(rgb);
    for (var code = 0; code < NONE; code++) {
      var place = (code / (NONE - 1)) * (parts.length - 1), low = Math.min(Math.floor(place), parts.length - 2), share = place - low;
      var mixed = [0, 1, 2].map(function (at) { return Math.round(parts[low][at] + (parts[low + 1][at] - parts[low][at]) * share); });
      table[code] = (255 << 24 | mixed[2] << 16 | mixed[1] << 8 | mixed[0]) >>> 0;
    }
    return table;
  }

  function css(colour) {
    return "rgb(" + (colour & 255) + "," + (colour >> 8 & 255) + "," + (colour >> 16 & 255) + ")";
  }

  /* How figures become colours: the same for every heatmap that is to be compared. */
  function scaleOf(range, ratio, log) {
    var least = range.least, most = range.most, positive = range.positive === null ? most : range.positive;
    if (ratio) {
      if (!log) {
        var far = Math.max(most - 1, 1 - least, 0.01);
        return { linear: true, low: 1 - far, high: 1 + far, middle: 1, at: function (v) { return 0.5 + (v - 1) / (2 * far); } };
      }
      var fold = Math.max(Math.log2(Math.max(most, 1)), -Math.log2(Math.min(positive, 1)), 0.015);
      return { low: Math.pow(2, -fold), high: Math.pow(2, fold), middle: 1, at: function (v) { return v > 0 ? 0.5 + Math.log2(v) / (2 * fold) : 0; } };
    }
    if (log && positive > 0 && most > positive) {
      var bottom = Math.log(positive), width = Math.log(most) - bottom, zero = least <= 0 ? 0.06 : 0;
      return { low: least <= 0 ? 0 : positive, high: most, middle: Math.exp(bottom + width / 2), at: function (v) { return v > 0 ? zero + (1 - zero) * (Math.log(v) - bottom) / width : 0; } };
    }
    if (most === least) return { low: least, high: most, middle: most, at: function () { return 0.75; } };
    var from = least > 0 && least / most > 0.5 ? least : Math.min(0, least);
    return { linear: true, low: from, high: most, middle: (from + most) / 2, at: function (v) { return (v - from) / (most - from); } };
  }

  function coded(data, scale) {
    var values = data.values, codes = new Uint8Array(values.length), at = scale.at, top = NONE - 1;
    if (scale.linear) {
      /* Most of the time of a large heatmap would go into calls. */
      var slope = top * (at(1) - at(0)), base = top * at(0) + 0.5;
      for (var one = 0; one < values.length; one++) {
        var shade = values[one] * slope + base;
        codes[one] = shade !== shade ? NONE : shade < 0 ? 0 : shade > top ? top : shade;
      }
      return codes;
    }
    for (var place = 0; place < values.length; place++) {
      var value = values[place];
      if (value !== value) codes[place] = NONE;
      else {
        var code = Math.round(at(value) * top);
        codes[place] = code < 0 ? 0 : code > top ? top : code;
      }
    }
    return codes;
  }

  function make(host, hands) {
    var canvas = document.createElement("canvas");
    var tip = document.createElement("div");
    tip.className = "cs-heat-tip";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    host.replaceChildren(canvas, tip);
    var pen = canvas.getContext("2d");
    var data = null, scale = null, codes = null, table = null, picture = null, ringed = null, pointed = null, drag = null, frame = 0, box = null;
    var options = { narrow: false, lines: 0 }, widest = 0;

    /* --- geometry ------------------------------------------------------------------------------------------- */

    function measure() {
      var wide = host.clientWidth, high = host.clientHeight;
      var sections = data && !data.folded && data.sections.length > 1 ? SECTION : 0;
      var gutter = Math.min(options.narrow ? 110 : Math.min(Math.max(widest, 90), GUTTER), wide * 0.34) + (options.narrow ? 0 : sections);
      var strip = options.narrow ? 0 : STRIP;
      var count = data ? data.shape[0] : 1, columns = data ? data.shape[1] : 1;
      var room = Math.max(high - TOP - 2, 20), most = Math.max(wide - gutter - strip - 12, 40);
      box = {
        wide: wide, high: high, x: gutter, y: TOP, sections: options.narrow ? 0 : sections, strip: strip,
        w: Math.min(most, columns * 96), h: Math.min(room, count * 26), lines: count, columns: columns,
      };
      box.cw = box.w / columns;
      /* Beside another heatmap lines stand at the height of its lines. */
      box.ch = Math.min(room, Math.max(count, options.lines || 0) * 26) / Math.max(count, options.lines || 0);
      box.h = box.ch * count;
    }

    function under(event) {
      var at = canvas.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
      if (!data || x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
      return { line: Math.min(Math.floor((y - box.y) / box.ch), box.lines - 1), column: Math.min(Math.floor((x - box.x) / box.cw), box.columns - 1), x: x, y: y };
    }

    /* Of a bin on the screen: lines and columns of the whole heatmap, ends exclusive. */
    function binOf(place) {
      var low = data.window[0] + place.line * data.down, left = data.window[2] + place.column * data.across;
      return { line: low, high: Math.min(low + data.down, data.window[1]), column: left, right: Math.min(left + data.across, data.window[3]) };
    }

    function placeOf(line, column) {
      if (!data || line < data.window[0] || line >= data.window[1] || column < data.window[2] || column >= data.window[3]) return null;
      return { line: Math.floor((line - data.window[0]) / data.down), column: Math.floor((column - data.window[2]) / data.across) };
    }

    /* --- drawing -------------------------------------------------------------------------------------------- */

    function later() {
      if (!frame) frame = window.requestAnimationFrame(function () { frame = 0; draw(); });
    }

    function draw() {
      if (!data || !host.clientWidth) return;
      measure();
      var ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(box.wide * ratio) || canvas.height !== Math.round(box.high * ratio)) {
        canvas.width = Math.round(box.wide * ratio);
        canvas.height = Math.round(box.high * ratio);
        picture = null;
      }
      paint(pen, ratio);
      host.dataset.ready = "";
    }

    function paint(to, ratio) {
      var look = colours();
      to.setTransform(ratio, 0, 0, ratio, 0, 0);
      to.clearRect(0, 0, box.wide, box.high);
      to.font = "11.5px " + look.font;
      to.textBaseline = "middle";
      if (!picture) picture = cells(ratio);
      to.drawImage(picture, box.x, box.y, box.w, box.h);
      to.strokeStyle = look.border;
      to.lineWidth = 1;
      to.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
      ranks(to, look);
      names(to, look);
      if (box.strip) strip(to, look);
      if (ringed) ring(to, look);
      if (drag && drag.moved) rubber(to, look);
    }

    function colours() {
      var style = getComputedStyle(document.documentElement);
      function token(name) { return style.getPropertyValue(name).trim(); }
      return { text: token("--cs-text"), dim: token("--cs-dim"), border: token("--cs-border"), accent: token("--cs-accent"), bg: token("--cs-bg"), soft: token("--cs-raised"), bar: token("--cs-collective"), font: token("--cs-font") };
    }

    /* One pass over the cells, one over the pixels: lines that share a row of pixels are first made one. */
    function cells(ratio) {
      var wide = Math.max(1, Math.round(box.w * ratio)), high = Math.max(1, Math.round(box.h * ratio));
      var surface = document.createElement("canvas");
      surface.width = wide;
      surface.height = high;
      var to = surface.getContext("2d"), image = to.createImageData(wide, high), out = new Uint32Array(image.data.buffer);
      var n = box.lines, m = box.columns, gapX = box.cw >= GAP_FROM ? Math.round(ratio) : 0, gapY = box.ch >= GAP_FROM ? Math.round(ratio) : 0;
      var diverging = data.unit === "ratio", one = new Uint8Array(m), before = -1, first = 0;
      var starts = new Int32Array(wide + 1);
      for (var x = 0; x <= wide; x++) starts[x] = Math.min(m, Math.floor(x * m / wide));
      for (var y = 0; y < high; y++) {
        var low = Math.floor(y * n / high), end = Math.max(low + 1, Math.floor((y + 1) * n / high));
        if (gapY && Math.floor((y + gapY) * n / high) > low) continue;
        if (low === before && end === low + 1 && y) {
          out.copyWithin(y * wide, first, first + wide);
          continue;
        }
        merge(one, low, end, m, diverging);
        for (x = 0; x < wide; x++) {
          var from = starts[x], to_ = Math.max(from + 1, starts[x + 1]);
          if (gapX && Math.floor((x + gapX) * m / wide) > from) continue;
          var code = one[from];
          for (var column = from + 1; column < to_; column++) code = stronger(code, one[column], diverging);
          if (code !== NONE) out[y * wide + x] = table[code];
        }
        before = low;
        first = y * wide;
      }
      to.putImageData(image, 0, 0);
      return surface;
    }

    function merge(one, low, end, m, diverging) {
      one.set(codes.subarray(low * m, low * m + m));
      for (var line = low + 1; line < end; line++) {
        for (var column = 0, at = line * m; column < m; column++, at++) {
          if (codes[at] !== NONE) one[column] = stronger(one[column], codes[at], diverging);
        }
      }
    }

    function stronger(a, b, diverging) {
      if (a === NONE) return b;
      if (b === NONE) return a;
      if (diverging) return Math.abs(b - 127) > Math.abs(a - 127) ? b : a;
      return b > a ? b : a;
    }

    function ranks(to, look) {
      var widest = to.measureText(String(data.numbers.length ? data.numbers.reduce(function (a, b) { return Math.max(a, b); }, 0) : 0)).width + 12;
      var every = Math.max(1, Math.ceil(widest / (box.cw / data.across)));
      var nice = [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512].find(function (step) { return step >= every; }) || every;
      to.textAlign = "right";
      to.fillStyle = look.dim;
      to.fillText(data.pairs ? "to rank" : "rank", box.x - 8, TOP - 10);
      to.textAlign = "center";
      var each = box.cw / data.across;
      for (var at = 0; at < data.numbers.length; at += nice) {
        var chosen = ringed && ringed.column === at + data.window[2];
        to.fillStyle = chosen ? look.accent : look.dim;
        to.fillText(String(data.numbers[at]), Math.min(box.x + (at + 0.5) * each, box.x + box.w - 6), TOP - 10);
      }
    }

    function nameOf(line) {
      if (data.folded) return data.sections[data.section[line]] || "all collectives";
      if (data.name[line] < 0) return "";
      var text = data.names[data.name[line]] || data.types[data.type[line]] || "";
      if (data.nth[line] >= 0) text += " #" + (data.nth[line] + 1);
      return text;
    }

    function longest() {
      var most = 0;
      pen.font = "11.5px " + colours().font;
      for (var line = 0; line < data.shape[0]; line += Math.max(1, Math.floor(data.shape[0] / 400))) most = Math.max(most, pen.measureText(nameOf(line)).width);
      return most + (data.down > 1 ? 52 : 28);
    }

    function groupOf(line) {
      return data.group[line] >= 0 ? data.groups[data.group[line]] || "all ranks" : "";
    }

    function names(to, look) {
      var every = Math.max(1, Math.ceil(LEAST_LABEL / box.ch)), room = box.x - box.sections - 16;
      var lowest = -Infinity;
      to.textAlign = "right";
      for (var line = 0; line < box.lines; line += every) {
        var y = Math.max(box.y + (line + 0.5) * box.ch, box.y + 6);
        if (y < lowest + LEAST_LABEL - 0.5) continue;
        lowest = y;
        if (every > 1 && line) {
          to.fillStyle = look.border;
          to.fillRect(box.x - 5, y, 4, 1);
        }
        to.fillStyle = pointed && pointed.line === line ? look.accent : look.text;
        var many = data.down > 1 ? " +" + (Math.min(data.down, data.window[1] - data.window[0] - line * data.down) - 1) : "";
        to.fillText(cut(to, nameOf(line), room - (many ? to.measureText(many).width : 0), true) + many, box.x - 9, y);
      }
      if (box.sections) sections(to, look);
    }

    function sections(to, look) {
      to.textAlign = "left";
      to.fillStyle = look.dim;
      for (var line = 0, start = 0; line <= box.lines; line++) {
        if (line < box.lines && data.section[line] === data.section[start]) continue;
        var y = box.y + start * box.ch, high = (line - start) * box.ch;
        if (start) {
          to.fillStyle = look.dim;
          to.fillRect(6, Math.round(y) - 0.5, box.sections - 10, 1);
          to.fillRect(box.x - 5, Math.round(y) - 0.5, box.w + 5, 1);
        }
        to.fillStyle = look.dim;
        if (high >= LEAST_LABEL - 1) to.fillText(cut(to, data.sections[data.section[start]] || "", box.sections - 6, false), 6, y + Math.min(high / 2, 9));
        start = line;
      }
    }

    /* How uneven each row is, by the measure that sorts them. */
    function strip(to, look) {
      var which = data.pairs ? "sum" : hands.measure(), measure = data[which], most = 0, least = which === "max" ? 1 : 0;
      for (var line = 0; line < box.lines; line++) if (measure[line] > most) most = measure[line];
      var x = box.x + box.w + 8, width = box.strip - 14, high = Math.max(1, Math.min(box.ch - (box.ch >= GAP_FROM ? 1 : 0), 26));
      to.fillStyle = look.dim;
      to.textAlign = "left";
      to.fillText({ max: "max/mean", variation: "var. coeff.", gini: "Gini", excess: "to move", sum: "sent" }[which], x, TOP - 10);
      for (line = 0; line < box.lines; line++) {
        if (!(measure[line] > least)) continue;
        to.fillStyle = look.bar;
        to.globalAlpha = 0.85;
        to.fillRect(x, box.y + line * box.ch, Math.max(1, width * (measure[line] - least) / Math.max(most - least, 1e-12)), high);
        to.globalAlpha = 1;
      }
    }

    function cut(to, text, room, keepEnd) {
      if (to.measureText(text).width <= room) return text;
      var low = 0, high = text.length;
      while (low < high) {
        var middle = (low + high + 1) >> 1;
        var part = keepEnd ? "…" + text.slice(text.length - middle) : text.slice(0, middle) + "…";
        if (to.measureText(part).width <= room) low = middle;
        else high = middle - 1;
      }
      return low ? (keepEnd ? "…" + text.slice(text.length - low) : text.slice(0, low) + "…") : "";
    }

    function ring(to, look) {
      var place = placeOf(ringed.line, ringed.column);
      if (!place) return;
      var w = Math.max(box.cw, 7), h = Math.max(box.ch, 7);
      var x = box.x + (place.column + 0.5) * box.cw - w / 2, y = box.y + (place.line + 0.5) * box.ch - h / 2;
      to.lineWidth = 4;
      to.strokeStyle = look.bg;
      to.strokeRect(x - 1, y - 1, w + 1, h + 1);
      to.lineWidth = 2;
      to.strokeStyle = look.accent;
      to.strokeRect(x - 1, y - 1, w + 1, h + 1);
      to.lineWidth = 1;
    }

    function rubber(to, look) {
      var x = Math.min(drag.x, drag.toX), y = Math.min(drag.y, drag.toY);
      to.fillStyle = look.accent;
      to.globalAlpha = 0.15;
      to.fillRect(x, y, Math.abs(drag.toX - drag.x), Math.abs(drag.toY - drag.y));
      to.globalAlpha = 1;
      to.strokeStyle = look.accent;
      to.strokeRect(x, y, Math.abs(drag.toX - drag.x), Math.abs(drag.toY - drag.y));
    }

    /* --- hands ---------------------------------------------------------------------------------------------- */

    function hover(event) {
      var place = under(event);
      if (!place) return leave();
      var value = data.values[place.line * box.columns + place.column], bin = binOf(place);
      var rank = data.numbers[place.column * data.across];
      var lines = [nameOf(place.line), (data.pairs ? "to rank " : "rank ") + rank + (bin.right - bin.column > 1 ? " to " + data.numbers[Math.min(place.column * data.across + data.across, data.numbers.length) - 1] : "")];
      if (groupOf(place.line)) lines[1] += " · group " + groupOf(place.line);
      if (value === value) {
        lines.push(data.unit === "ratio" ? digits(value) + "× the mean, " + format(value * data.mean[place.line], data.measured) : format(value, data.unit));
      } else lines.push(data.pairs ? "nothing between them" : "takes no part");
      if (data.down > 1 || data.across > 1) lines.push("the largest of " + (bin.high - bin.line) + " × " + (bin.right - bin.column) + " cells; click to open");
      tip.replaceChildren.apply(tip, lines.filter(Boolean).map(function (text) {
        var line = document.createElement("div");
        line.textContent = text;
        return line;
      }));
      tip.hidden = false;
      tip.style.left = Math.max(0, Math.min(place.x + 14, box.wide - tip.offsetWidth - 4)) + "px";
      tip.style.top = (place.y + 18 + tip.offsetHeight > box.high ? place.y - tip.offsetHeight - 10 : place.y + 18) + "px";
      if (!pointed || pointed.line !== place.line || pointed.column !== place.column) {
        pointed = place;
        later();
        hands.point(bin, value === value);
      }
    }

    function leave() {
      tip.hidden = true;
      if (!pointed) return;
      pointed = null;
      later();
      hands.point(null);
    }

    /* Fingers: one moves the window, two bring what lies between them closer; a mouse marks what to look at. */

    var fingers = new Map(), grip = null, lastStep = 0;

    function spot(event) {
      var at = canvas.getBoundingClientRect();
      return { x: event.clientX - at.left, y: event.clientY - at.top };
    }

    function middle() {
      var all = Array.from(fingers.values()), two = all[1] || all[0];
      return { x: (all[0].x + two.x) / 2, y: (all[0].y + two.y) / 2, apart: Math.hypot(all[0].x - two.x, all[0].y - two.y) };
    }

    function take() {
      grip = { at: middle(), window: hands.goal(data), moved: grip ? true : false, shown: "" };
    }

    /* Where the window has gone to since the fingers took hold of it. */
    function gripped() {
      var now = middle(), from = grip.window, apart = fingers.size > 1 ? Math.max(now.apart, 12) / Math.max(grip.at.apart, 12) : 1;
      function span(low, high, least, end, begin, place, offset, size) {
        var long = Math.min((high - low) / apart, end), held = low + ((begin - offset) / size) * (high - low);
        var first = Math.min(Math.max(Math.round(held - ((place - offset) / size) * long), least), Math.round(end - long));
        return [first, first + Math.max(1, Math.round(long))];
      }
      return span(from[0], from[1], 0, data.lines, grip.at.y, now.y, box.y, box.h).concat(span(from[2], from[3], 0, data.ranks, grip.at.x, now.x, box.x, box.w));
    }

    function follow(last) {
      var to = gripped(), text = to.join();
      if (text === grip.shown || (!last && Date.now() - lastStep < 120)) return;
      grip.shown = text;
      lastStep = Date.now();
      if (text !== hands.goal(data).join()) hands.zoom(to[0], to[1], to[2], to[3], true);
    }

    function touched(event) {
      if (event.pointerType !== "touch" || !data) return false;
      if (event.type === "pointerdown") {
        fingers.set(event.pointerId, spot(event));
        canvas.setPointerCapture(event.pointerId);
        take();
      } else if (fingers.has(event.pointerId)) {
        if (event.type === "pointermove") {
          fingers.set(event.pointerId, spot(event));
          var now = middle();
          grip.moved = grip.moved || Math.hypot(now.x - grip.at.x, now.y - grip.at.y) > 6;
          if (grip.moved || fingers.size > 1) follow(false);
        } else {
          if (grip.moved || fingers.size > 1) follow(true);
          fingers.delete(event.pointerId);
          if (fingers.size) take();
          else {
            var tapped = !grip.moved && event.type === "pointerup" && under(event);
            grip = null;
            if (tapped) press(tapped, event);
          }
        }
      }
      return true;
    }

    function press(place, event) {
      var bin = binOf(place);
      return bin.high - bin.line > 1 || bin.right - bin.column > 1 ? hands.open(bin) : hands.choose(bin.line, bin.column, event);
    }

    canvas.addEventListener("pointerdown", function (event) {
      if (touched(event)) return;
      var place = under(event);
      if (!place || event.button) return;
      drag = { x: place.x, y: place.y, toX: place.x, toY: place.y, from: place, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      if (touched(event)) return;
      if (!drag) return hover(event);
      var at = canvas.getBoundingClientRect();
      drag.toX = Math.min(Math.max(event.clientX - at.left, box.x), box.x + box.w - 0.01);
      drag.toY = Math.min(Math.max(event.clientY - at.top, box.y), box.y + box.h - 0.01);
      if (Math.abs(drag.toX - drag.x) + Math.abs(drag.toY - drag.y) > 6) drag.moved = true;
      tip.hidden = true;
      later();
    });
    canvas.addEventListener("pointerup", function (event) {
      if (touched(event) || !drag) return;
      var one = drag;
      drag = null;
      later();
      if (!one.moved) return press(one.from, event);
      var a = binOf({ line: Math.floor((Math.min(one.y, one.toY) - box.y) / box.ch), column: Math.floor((Math.min(one.x, one.toX) - box.x) / box.cw) });
      var b = binOf({ line: Math.floor((Math.max(one.y, one.toY) - box.y) / box.ch), column: Math.floor((Math.max(one.x, one.toX) - box.x) / box.cw) });
      hands.zoom(a.line, b.high, a.column, b.right);
    });
    canvas.addEventListener("pointercancel", function (event) { touched(event); drag = null; later(); });
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("dblclick", function () { hands.zoom(0, data.lines, 0, data.ranks); });
    canvas.addEventListener("wheel", function (event) {
      var place = under(event);
      if (!place) return;
      var at = hands.goal(data), lines = at[1] - at[0], columns = at[3] - at[2];
      var line = at[0] + (place.y - box.y) / box.h * lines, column = at[2] + (place.x - box.x) / box.w * columns;
      if (event.ctrlKey || event.shiftKey || event.metaKey) {
        event.preventDefault();
        var by = Math.pow(1.002, (event.deltaY || event.deltaX)), high = Math.min(lines * by, data.lines), wide = Math.min(columns * by, data.ranks);
        var share = (place.y - box.y) / box.h, part = (place.x - box.x) / box.w;
        hands.zoom(line - share * high, line + (1 - share) * high, column - part * wide, column + (1 - part) * wide, true);
      } else if (lines < data.lines) {
        event.preventDefault();
        var step = Math.sign(event.deltaY) * Math.max(1, Math.round(lines / 12));
        step = Math.min(Math.max(step, -at[0]), data.lines - at[1]);
        if (step) hands.zoom(at[0] + step, at[1] + step, at[2], at[3], true);
      }
    }, { passive: false });

    new ResizeObserver(function () { picture = null; later(); }).observe(host);

    return {
      /* Draw what the server sent, with the colours of a scale. */
      show: function (found, given, more) {
        data = found;
        scale = given;
        Object.assign(options, more);
        var theme = document.documentElement.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
        table = ramp(data.colours[data.unit === "ratio" ? "diverging" : "sequential"][theme]);
        codes = coded(data, scale);
        widest = longest();
        picture = null;
        pointed = null;
        tip.hidden = true;
        draw();
      },
      ring: function (line, column) {
        ringed = line === null || line === undefined ? null : { line: line, column: column };
        later();
      },
      wipe: function () {
        data = null;
        delete host.dataset.ready;
        canvas.width = canvas.width;
      },
      data: function () { return data; },
      /* Where on the page a cell is, for those who act on it from outside. */
      point: function (line, column) {
        var place = placeOf(line, column), at = canvas.getBoundingClientRect();
        return place && { x: at.left + box.x + (place.column + 0.5) * box.cw, y: at.top + box.y + (place.line + 0.5) * box.ch };
      },
      legend: function (into) { legend(into, data, scale, table); },
      png: function () {
        var look = colours(), ratio = 2, copy = document.createElement("canvas"), before = picture;
        copy.width = box.wide * ratio;
        copy.height = box.high * ratio;
        var to = copy.getContext("2d");
        picture = null;
        paint(to, ratio);
        to.globalCompositeOperation = "destination-over";
        to.fillStyle = look.bg;
        to.fillRect(0, 0, box.wide, box.high);
        picture = before;
        return new Promise(function (done) { copy.toBlob(done); });
      },
      svg: function () {
        var before = picture;
        picture = cells(2);
        var text = vector(box, picture, paint);
        picture = before;
        return Promise.resolve(text);
      },
    };
  }

  /* The same drawing with text as text: a pen that writes SVG in place of pixels, for the calls that paint() makes. */
  function vector(box, picture, paint) {
    var parts = [], probe = document.createElement("canvas").getContext("2d");
    function safe(text) { return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;"); }
    var pen = {
      globalAlpha: 1, lineWidth: 1, fillStyle: "", strokeStyle: "", textAlign: "left", textBaseline: "middle",
      set font(value) { probe.font = value; },
      get font() { return probe.font; },
      setTransform: function () {},
      clearRect: function () {},
      measureText: function (text) { return probe.measureText(text); },
      drawImage: function (image, x, y, w, h) {
        parts.push('<image x="' + x + '" y="' + y + '" width="' + w + '" height="' + h + '" preserveAspectRatio="none" style="image-rendering:pixelated" href="' + image.toDataURL() + '"/>');
      },
      fillRect: function (x, y, w, h) { parts.push('<rect x="' + x + '" y="' + y + '" width="' + w + '" height="' + h + '" fill="' + pen.fillStyle + '" fill-opacity="' + pen.globalAlpha + '"/>'); },
      strokeRect: function (x, y, w, h) { parts.push('<rect x="' + x + '" y="' + y + '" width="' + w + '" height="' + h + '" fill="none" stroke="' + pen.strokeStyle + '" stroke-width="' + pen.lineWidth + '"/>'); },
      fillText: function (text, x, y) {
        var anchor = { left: "start", right: "end", center: "middle" }[pen.textAlign];
        parts.push('<text x="' + x + '" y="' + y + '" fill="' + pen.fillStyle + '" text-anchor="' + anchor + '" dominant-baseline="central">' + safe(text) + "</text>");
      },
    };
    paint(pen, 1);
    var ground = getComputedStyle(document.documentElement).getPropertyValue("--cs-bg").trim();
    return '<svg xmlns="http://www.w3.org/2000/svg" width="' + box.wide + '" height="' + box.high + '" viewBox="0 0 ' + box.wide + " " + box.high + '" font-family="system-ui, sans-serif" font-size="11.5"><rect width="100%" height="100%" fill="' + ground + '"/>' + parts.join("") + "</svg>";
  }

  function legend(into, data, scale, table) {
    var bar = document.createElement("span");
    bar.className = "cs-heat-ramp";
    var stops = [];
    for (var at = 0; at <= 8; at++) stops.push(css(table[Math.round(at / 8 * (NONE - 1))]));
    bar.style.background = "linear-gradient(to right, " + stops.join(", ") + ")";
    var words = [scale.low, scale.middle, scale.high].map(function (value) { return format(value, data.unit); });
    if (data.unit === "ratio") words[1] = "row mean";
    if (scale.low === scale.high) words = [words[0]];
    var ends = document.createElement("span");
    ends.className = "cs-heat-ends";
    words.forEach(function (text) {
      var word = document.createElement("span");
      word.textContent = text;
      ends.append(word);
    });
    var both = document.createElement("span");
    both.className = "cs-heat-scale";
    both.append(bar, ends);
    into.replaceChildren(both);
  }

  window.studioHeatmap = { make: make, scaleOf: scaleOf, format: format };
})();
