/* Pins that keep ranks in sight, and marks that keep moments. */
(function (t) {
  "use strict";

  var flags = []; /* moments, in ns after the beginning, rising */

  t.onApply.push(function (view) {
    flags = (view.flags || "").split(",").filter(function (one) { return /^\d+$/.test(one); }).map(Number).sort(function (a, b) { return a - b; }).slice(0, 26);
  });

  function pin(rank) {
    var at = t.pins.indexOf(rank), next = t.pins.slice();
    if (at < 0) next.push(rank);
    else next.splice(at, 1);
    t.change({ pin: next.join(",") || null });
  }

  t.keys.p = function () {
    var place = t.pointer && t.rowAt(t.pointer[1]);
    if (place) pin(place.group.rank);
    else if (t.selection && t.selection.bar) pin(t.selection.bar.rank);
  };

  /* A mark at the pointer, else at the beginning of the selected node; one that is there goes. */
  t.keys.m = function (event) {
    var bar = t.selection && t.selection.bar;
    if (event.shiftKey) {
      if (bar) t.change({ mark: bar.start + "-" + Math.max(bar.end, bar.start + 1) });
      return;
    }
    var at = t.pointer && t.pointer[0] > t.GUTTER ? Math.round(t.ns(t.pointer[0])) : bar ? bar.start : null;
    if (at === null) return;
    at = Math.min(Math.max(at, 0), t.chart.span);
    var near = ((t.shown.to - t.shown.from) / t.width()) * 5;
    var left = flags.filter(function (one) { return Math.abs(one - at) > near; });
    t.change({ flags: (left.length < flags.length ? left : left.concat(at)).sort(function (a, b) { return a - b; }).join(",") || null });
  };

  function letter(at) {
    return String.fromCharCode(65 + at);
  }

  t.overlays.push(function (pen, wide, high) {
    pen.strokeStyle = t.look.text;
    pen.lineWidth = 1;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    flags.forEach(function (flag) {
      var at = Math.round(t.x(flag)) + 0.5;
      if (at < t.GUTTER || at > wide) return;
      pen.moveTo(at, t.AXIS);
      pen.lineTo(at, high);
    });
    pen.stroke();
    pen.setLineDash([]);
  });

  t.onAxis.push(function (pen, wide) {
    pen.font = t.look.font;
    pen.textBaseline = "middle";
    flags.forEach(function (flag, index) {
      var at = t.x(flag);
      if (at < t.GUTTER || at > wide) return;
      var text = letter(index) + " " + (index ? "+" + t.time(flag - flags[index - 1]) : t.moment(flag));
      var room = t.textWidth(pen, text) + 10, left = at + room > wide ? at - room : at;
      pen.fillStyle = t.look.text;
      pen.fillRect(left, t.AXIS - 19, room, 17);
      pen.fillStyle = t.look.bg;
      pen.fillText(text, left + 5, t.AXIS - 10);
    });
  });

  t.flagWords = function () {
    if (!flags.length) return "";
    return flags.map(function (flag, at) { return letter(at) + " " + t.moment(flag) + (at ? " (+" + t.time(flag - flags[at - 1]) + ")" : ""); }).join(" · ");
  };
  t.pin = pin;
})(window.studioTimeline = window.studioTimeline || {});
