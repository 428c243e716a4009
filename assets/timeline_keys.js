/* The keyboard. */
(function (t) {
  "use strict";

  var KEYS = {
    w: function () { t.zoom(1.5, aim()); }, s: function () { t.zoom(1 / 1.5, aim()); },
    a: function () { t.pan(-0.2); }, d: function () { t.pan(0.2); },
    ArrowLeft: function () { t.pan(-0.1); }, ArrowRight: function () { t.pan(0.1); },
    ArrowUp: function () { t.dom.scroll.scrollTop -= 60; }, ArrowDown: function () { t.dom.scroll.scrollTop += 60; },
    PageUp: function () { t.dom.scroll.scrollTop -= t.dom.scroll.clientHeight * 0.9; }, PageDown: function () { t.dom.scroll.scrollTop += t.dom.scroll.clientHeight * 0.9; },
    "+": function () { t.zoom(2, aim()); }, "=": function () { t.zoom(2, aim()); }, "-": function () { t.zoom(0.5, aim()); },
    "0": function () { t.fit(); }, f: fitSelection,
    ".": function () { t.walk("next"); }, ",": function () { t.walk("previous"); },
    "[": function () { t.walk("up"); }, "]": function () { t.walk("down"); },
    z: function () { if (t.marked) t.go(t.marked[0], t.marked[1]); },
    "?": help,
    Escape: function () {
      if (t.marked) t.change({ mark: null });
      else if (t.selectionKey) t.change({ node: null });
    },
  };

  function aim() {
    return t.pointer && t.pointer[0] > t.GUTTER ? t.pointer[0] : null;
  }

  /* F fits the selected node; once it fills the window, or where none is selected, everything. */
  function fitSelection() {
    if (t.selectionKey && !t.selection) {
      t.waiting = fitSelection;
      return;
    }
    var bar = t.selection && t.selection.bar, now = t.target();
    if (!bar) return t.fit();
    var wide = Math.max((bar.end - bar.start) * 1.5, t.NARROWEST_NS * 4), middle = (bar.start + bar.end) / 2;
    if (Math.abs(now.to - now.from - wide) < wide * 0.01) return t.fit();
    t.go(middle - wide / 2, middle + wide / 2);
  }

  function help() {
    var box = t.element("timeline-keys");
    if (box && !box.open) box.showModal();
  }

  function pressed(event) {
    if (!t.dom || !t.dom.canvas.isConnected || !t.chart || !t.chart.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    var here = document.activeElement;
    if (here && here !== document.body && here !== t.dom.scroll) return;
    var key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    var act = KEYS[key] || t.keys[key];
    if (!act) return;
    event.preventDefault();
    act(event);
  }

  t.help = help;
  t.pressed = pressed;
})(window.studioTimeline = window.studioTimeline || {});
