/* Pointer, fingers and wheel. */
(function (t) {
  "use strict";

  t.drag = null;
  t.fingers = new Map();

  function dragging() {
    return Boolean(t.drag && t.drag.moved) || t.fingers.size > 1;
  }

  /* The address knows of a window that is being marked when the hand lets go. */
  function marking() {
    return Boolean(t.drag && t.drag.moved && t.drag.ruler);
  }

  function local(event) {
    var box = t.dom.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function down(event) {
    if (event.button !== 0 || !t.chart || !t.chart.ready) return;
    t.dom.scroll.focus({ preventScroll: true });
    var at = local(event);
    if (at[0] > t.dom.scroll.clientWidth) return;
    t.fingers.set(event.pointerId, at);
    if (t.fingers.size === 2) {
      t.drag = null;
      return;
    }
    t.animation = null;
    t.drag = { at: at, from: t.shown.from, to: t.shown.to, top: t.dom.scroll.scrollTop, moved: false, ruler: at[0] > t.GUTTER && (event.shiftKey || at[1] < t.AXIS), touch: event.pointerType === "touch" };
  }

  function move(event) {
    if (!t.dom || !t.chart || !t.chart.ready) return;
    var at = local(event);
    t.pointer = at;
    if (t.fingers.has(event.pointerId)) {
      if (t.fingers.size === 2) return pinch(event, at);
      t.fingers.set(event.pointerId, at);
    }
    if (!t.drag) return t.pointed();
    if (!t.drag.moved && Math.hypot(at[0] - t.drag.at[0], at[1] - t.drag.at[1]) < 4) return;
    if (!t.drag.moved) {
      t.drag.moved = true;
      t.dom.canvas.setPointerCapture(event.pointerId);
      t.hover = null;
    }
    if (t.drag.ruler) {
      var ends = [t.ns(t.drag.at[0]), t.ns(Math.max(at[0], t.GUTTER))].map(function (one) { return Math.round(Math.min(Math.max(one, 0), t.chart.span)); });
      t.marked = [Math.min(ends[0], ends[1]), Math.max(ends[0], ends[1])];
    } else {
      var by = ((at[0] - t.drag.at[0]) / t.width()) * (t.drag.to - t.drag.from);
      t.shown = t.clamp(t.drag.from - by, t.drag.to - by);
      if (!t.drag.touch) t.dom.scroll.scrollTop = t.drag.top - (at[1] - t.drag.at[1]);
    }
    t.draw();
  }

  function pinch(event, at) {
    var other = Array.from(t.fingers.keys()).find(function (id) { return id !== event.pointerId; });
    var before = t.fingers.get(event.pointerId), still = t.fingers.get(other);
    var was = Math.abs(before[0] - still[0]), is = Math.abs(at[0] - still[0]);
    t.fingers.set(event.pointerId, at);
    if (was > 8 && is > 8) t.zoom(is / was, (at[0] + still[0]) / 2, true);
  }

  function up(event) {
    t.fingers.delete(event.pointerId);
    if (!t.drag) return;
    var was = t.drag;
    t.drag = null;
    if (!was.moved) {
      if (event.type === "pointerup") tap(was.at);
    } else if (was.ruler) {
      t.change({ mark: t.marked && t.marked[1] > t.marked[0] ? t.marked.join("-") : null });
    } else {
      t.rested();
    }
    t.draw();
  }

  function tap(at) {
    if (at[0] >= t.GUTTER) return t.pick(at[0], at[1]);
    var place = t.rowAt(at[1]);
    if (!place) return;
    if (at[0] > place.group.pinAt - 8 && at[0] < place.group.pinAt + 8) return t.pin(place.group.rank);
    t.folds.list[place.group.rank] = !t.folds.list[place.group.rank];
    t.writeFolds();
  }

  function wheel(event) {
    if (!t.chart || !t.chart.ready) return;
    var by = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.shiftKey) {
      event.preventDefault();
      var turn = (event.deltaY || event.deltaX) * by;
      t.animation = null;
      t.zoom(Math.exp(-Math.max(-120, Math.min(120, turn)) * (event.ctrlKey && Math.abs(turn) < 30 ? 0.012 : 0.0025)), Math.max(local(event)[0], t.GUTTER), true);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      t.animation = null;
      var shift = ((event.deltaX * by) / t.width()) * (t.shown.to - t.shown.from);
      t.go(t.shown.from + shift, t.shown.to + shift, true);
    }
  }

  t.dragging = dragging;
  t.marking = marking;
  t.down = down;
  t.move = move;
  t.up = up;
  t.wheel = wheel;
})(window.studioTimeline = window.studioTimeline || {});
