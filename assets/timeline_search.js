/* Search: what fits is outlined, counted, and walked through. */
(function (t) {
  "use strict";

  var found = null; /* rows, nodes, starts and ends of what fits, by start */
  var asked = "";
  var at = -1; /* which of them was gone to last */
  var going = -1, gone = ""; /* the one that is on its way to be selected, and what is until it is */
  var entered = null; /* a step that was asked for before what fits had come: through what, and which way */

  t.onLoad.push(function () {
    found = null;
    asked = "";
    tell("");
  });

  function searchField() {
    var box = t.element("timeline-find"), field = box && box.firstChild;
    if (!box || field) return field;
    field = document.createElement("input");
    field.id = "timeline-search";
    field.type = "search";
    field.className = "cs-timeline-search";
    field.placeholder = "Search  ( / )";
    field.spellcheck = false;
    field.setAttribute("aria-label", "Search bars");
    field.setAttribute("autocomplete", "off");
    box.appendChild(field);
    tell("");
    return field;
  }

  t.onApply.push(function (view) {
    var field = searchField();
    if (!field) return;
    if (document.activeElement !== field) field.value = view.q || "";
    if ((view.q || "") !== asked) ask(view.q || "");
    if (t.selectionKey !== gone) gone = null;
  });

  function ask(text) {
    asked = text;
    at = going = -1;
    if (!text) {
      found = null;
      tell("");
      t.draw();
      return;
    }
    var mine = t.chart;
    t.later("search", 300, function () { if (asked === text && (!found || found.text !== text)) tell("…"); });
    t.get(t.address("/search", { q: text }))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (mine !== t.chart || asked !== text) return;
        found = window.studioUnpacked(buffer);
        found.text = text;
        count();
        t.draw();
        if (entered && entered.text === text) {
          step(entered.forward);
          entered = null;
        }
      })
      .catch(function (error) {
        if (asked !== text) return;
        found = null;
        t.later("search", 0, function () { /* Nothing is awaited any more. */ });
        tell(error && error.message ? error.message : "The studio does not answer.");
        t.draw();
      });
  }

  function tell(words) {
    var box = t.element("timeline-hits");
    t.say(box, words);
    if (box) box.title = words;
    ["timeline-hit-previous", "timeline-hit-next"].forEach(function (id) {
      if (t.element(id)) t.element(id).hidden = !found || !found.count;
    });
  }

  function count() {
    if (!found) return;
    if (!found.count) return tell("none");
    tell((at < 0 ? "" : (at + 1).toLocaleString("en") + " of ") + found.count.toLocaleString("en"));
  }

  /* To the next one that fits, or the one before: after the selected node, else from the left edge on. */
  function step(forward) {
    if (!found || !found.row.length) return;
    var bar = t.selection && t.selection.bar, last = found.row.length, index = -1;
    /* Until it is selected, and told of. */
    if (going >= 0 && (t.selectionKey === gone || (t.selectionKey && !t.selection))) index = going;
    else if (bar) {
      for (var one = 0; one < last && index < 0; one++) if (found.row[one] === bar.row && found.node[one] === bar.index) index = one;
    }
    if (index >= 0) at = (index + (forward ? 1 : last - 1)) % last;
    else {
      var low = 0, high = last;
      while (low < high) {
        var middle = (low + high) >> 1;
        if (found.start[middle] < t.shown.from) low = middle + 1;
        else high = middle;
      }
      at = forward ? low % last : (low + last - 1) % last;
    }
    going = at;
    gone = t.selectionKey;
    count();
    t.pickNode(t.chart.rank[found.row[at]], found.node[at]);
  }

  t.overlays.push(function (pen, wide, high) {
    if (!found || !found.row.length) return;
    var left = t.shown.from, right = t.shown.to, seen = new Set();
    pen.strokeStyle = t.look.text;
    pen.fillStyle = t.look.text;
    pen.lineWidth = 1;
    for (var one = 0; one < found.row.length; one++) {
      if (found.start[one] > right) break;
      if (found.end[one] < left) continue;
      var row = found.row[one], place = t.placeOfRow(row);
      if (place.behind || place.y + place.height < t.AXIS || place.y > high) continue;
      var from = Math.max(t.x(found.start[one]), t.GUTTER), to = Math.min(t.x(found.end[one]), wide);
      if (to - from > 5) pen.strokeRect(from + 0.5, place.y + 0.5, to - from - 1, place.height - 1);
      else {
        var key = row * 8192 + Math.round(from);
        if (seen.has(key)) continue;
        seen.add(key);
        pen.fillRect(from, place.y - 1, Math.max(1.5, to - from), place.height + 2);
      }
    }
  });

  /* Where in the whole run they lie, along the axis. */
  t.onAxis.push(function (pen, wide) {
    if (!found) return;
    var last = -1;
    pen.fillStyle = t.look.accent;
    for (var one = 0; one < found.row.length; one++) {
      var px = Math.round(t.x(found.start[one]));
      if (px === last || px < t.GUTTER || px > wide) continue;
      last = px;
      pen.fillRect(px, t.AXIS - 5, 2, 4);
    }
  });

  document.addEventListener("input", function (event) {
    if (event.target.id !== "timeline-search") return;
    entered = null;
    var text = event.target.value;
    t.later("typed", 200, function () { if (t.chart && t.chart.ready) t.change({ q: text || null }, { replace: true }); });
  });
  document.addEventListener("keydown", function (event) {
    if (event.target.id !== "timeline-search") return;
    if (event.key === "Enter") {
      if (found && found.text === event.target.value) step(!event.shiftKey);
      else entered = { text: event.target.value, forward: !event.shiftKey };
    }
    if (event.key === "Escape" && t.dom) t.dom.scroll.focus();
  });

  t.keys["/"] = function () {
    t.element("timeline-search").focus();
    t.element("timeline-search").select();
  };
  t.keys.n = function (event) { step(!event.shiftKey); };
  t.buttons["timeline-hit-next"] = function () { step(true); };
  t.buttons["timeline-hit-previous"] = function () { step(false); };
})(window.studioTimeline = window.studioTimeline || {});
