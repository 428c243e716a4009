/* What is under the pointer, and the sentences below the lanes. */
(function (t) {
  "use strict";

  t.described = 0;

  function describe() {
    t.described = performance.now();
    if (!t.dom || !t.chart || !t.chart.ready) return;
    var window_ = t.time(Math.round(Math.min(t.shown.to, t.chart.span) - Math.max(t.shown.from, 0)));
    var words = t.many(t.counts.drawn, "bar") + " of " + t.many(t.chart.bars, "node") + (t.chart.undrawn ? " with times" : "") + " · " + window_ + " shown";
    if (t.counts.binned) words += " · crowded lanes as share of time busy";
    t.say(t.dom.detail, words);
    t.say(t.element("timeline-undrawn"), t.chart.undrawn);
    if (!t.hover) t.say(t.dom.status, restingSentence());
  }

  function restingSentence() {
    if (t.marked) return "Window " + t.moment(t.marked[0]) + " to " + t.moment(t.marked[1]) + ": " + t.time(t.marked[1] - t.marked[0]) + " · Z zooms to it, Esc clears it";
    if (t.selection && t.selection.bar) return sentence(t.selection.bar) + t.chainWords();
    if (t.selectionKey) return t.selection ? "The selected node has no times here." : t.dom.status.textContent;
    return t.flagWords() || "Point at a bar, or press ? for the keys.";
  }

  function sentence(bar) {
    if (bar.ghost) return "the other run · rank " + bar.rank + " · " + (bar.name || "(no name)") + " · issued " + t.moment(bar.start) + " · callback " + t.moment(bar.end) + " · " + t.time(bar.end - bar.start);
    var parts = ["rank " + bar.rank, bar.name || "(no name)"];
    if (bar.bytes) parts.push(t.scaled(bar.bytes, t.SIZES));
    parts.push("issued " + t.moment(bar.start), "callback " + t.moment(bar.end), t.time(bar.end - bar.start) + t.waited(bar) + t.differs(bar));
    return parts.join(" · ");
  }

  /* What is under the pointer: a bar, or a bin of a row that is too full for bars. */
  function under(px, py) {
    if (px < t.GUTTER || py < t.AXIS) return null;
    var place = t.rowAt(py);
    if (!place || place.row < 0) return null;
    var at = t.ns(px), level = t.zoomLevel(), reach = ((t.shown.to - t.shown.from) / t.width()) * 3;
    var stands = t.placeOfRow(place.row), ghost = t.ghost && py > stands.y + stands.height;
    var found = t.tile(level, Math.floor(at / t.tileSpan(level)), place.row + (ghost ? t.chart.rank.length : 0));
    if (!found || at < 0) return null;
    var data = found.batch.found, begin = found.batch.begin;
    if (found.binned >= 0) return bin(found, place.row, at, ghost);
    var best = null, nearest = reach;
    for (var one = found.low; one < found.high; one++) {
      if (t.hidden[data.category[one]]) continue;
      var start = begin + data.start[one], end = begin + data.end[one];
      var away = at < start ? start - at : at >= end ? at - end : -1;
      if (away < nearest) {
        nearest = away;
        best = { rank: t.chart.rank[place.row], row: place.row, start: start, end: end, name: data.names[data.name[one]], bytes: data.bytes[one], index: data.node[one], category: data.category[one], ghost: ghost };
      }
    }
    return best && { bar: best };
  }

  function bin(found, row, at, ghost) {
    var data = found.batch.found, bins = t.chart.bins;
    var size = t.tileSpan(found.batch.level) / bins;
    var index = Math.min(bins - 1, Math.floor((at - found.batch.begin) / size));
    var parts = found.batch.strips[found.binned].map(function (strip) {
      var share = data.fraction[strip * bins + index] / 255;
      return share ? t.CATEGORIES[data.strip_category[strip]] + " " + (share < 0.01 ? "under 1" : Math.round(share * 100)) + " %" : "";
    }).filter(Boolean);
    var begun = data.begun[found.binned * bins + index];
    var from = found.batch.begin + index * size;
    var words = ["rank " + t.chart.rank[row] + " · " + t.laneName(row), t.moment(from) + " to " + t.moment(from + size), parts.length ? "busy: " + parts.join(", ") : "idle"];
    if (begun) words.push(t.many(begun, "node") + " begin");
    return { ghost: ghost, words: (ghost ? "the other run: " : "") + words.join(" · "), row: row, at: at, within: size / 2 };
  }

  function pointed() {
    var found = t.pointer && !t.dragging() ? under(t.pointer[0], t.pointer[1]) : null;
    t.hover = found;
    t.dom.canvas.style.cursor = found && found.bar ? "pointer" : t.pointer && t.pointer[0] < t.GUTTER ? "default" : "crosshair";
    t.pointCounters();
    t.meet(found && found.bar);
    t.contrast(found && found.bar ? found.bar : t.selection && t.selection.bar);
    if (!found) return t.draw();
    t.say(t.dom.status, found.bar ? sentence(found.bar) : found.words);
    if (found.bar || found.ghost) return;
    /* Too full for bars: the server knows which node it is. */
    t.later("point", 120, function () {
      if (t.hover !== found) return;
      t.get(t.address("/node", { row: found.row, at: Math.round(found.at), within: Math.ceil(found.within) }))
        .then(function (answer) { return answer.json(); })
        .then(function (answer) {
          if (t.hover !== found || !answer.bar) return;
          found.said = answer.bar;
          t.meet(answer.bar);
          t.contrast(answer.bar);
          t.say(t.dom.status, sentence(answer.bar) + " · " + found.words.split(" · ").slice(3).join(" · "));
        })
        .catch(function () { /* The bin's own words stay. */ });
    });
  }

  /* Say it again: something about the bar has become known. */
  function resay() {
    if (!t.hover) return describe();
    if (t.hover.bar) t.say(t.dom.status, sentence(t.hover.bar));
    else if (t.hover.said) t.say(t.dom.status, sentence(t.hover.said) + " · " + t.hover.words.split(" · ").slice(3).join(" · "));
  }

  t.resay = resay;
  t.describe = describe;
  t.under = under;
  t.pointed = pointed;
})(window.studioTimeline = window.studioTimeline || {});
