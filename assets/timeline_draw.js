/* A frame: what is drawn in which order, the axis and its grid. */
(function (t) {
  "use strict";

  function draw() {
    if (!t.frame) t.frame = window.requestAnimationFrame(render);
  }

  function resize() {
    var ratio = window.devicePixelRatio || 1;
    var wide = Math.round(t.size.wide * ratio), high = Math.round(t.size.high * ratio);
    if (t.dom.canvas.width === wide && t.dom.canvas.height === high) return;
    t.dom.canvas.width = wide;
    t.dom.canvas.height = high;
    t.dom.canvas.style.width = t.size.wide + "px";
    t.dom.canvas.style.height = t.size.high + "px";
  }

  function render(now) {
    t.frame = 0;
    if (!t.dom || !t.chart || !t.chart.ready || !t.dom.canvas.isConnected) return;
    var began = performance.now();
    t.measure();
    if (t.size.wide < t.GUTTER + 40) return;
    if (t.animation) t.step(now);
    t.clock++;
    t.counts.frames++;
    t.dress();
    resize();
    var pen = t.dom.canvas.getContext("2d", { alpha: false });
    pen.setTransform(t.look.ratio, 0, 0, t.look.ratio, 0, 0);
    var wanted = picture(pen);
    /* Words that change at every frame cannot be read, and cost a layout each. */
    if (performance.now() - t.described > 150) t.describe();
    else t.later("describe", 160, t.describe);
    t.fetchMissing(wanted);
    t.onFrame.forEach(function (act) { act(!wanted.missing.size); });
    t.counts.spent += performance.now() - began;
    if (t.animation) draw();
  }

  /* Draw everything with a pen: that of the canvas, or one that writes SVG. */
  function picture(pen) {
    pen.imageSmoothingEnabled = false;
    var wide = t.size.wide, high = t.size.high;
    pen.fillStyle = t.look.bg;
    pen.fillRect(0, 0, wide, high);
    var steps = ticks();
    grid(pen, steps, high);
    var wanted = t.lanes(pen, wide, high);
    marks(pen, high);
    t.overlays.forEach(function (overlay) { overlay(pen, wide, high); });
    t.arrows(pen, wide, high);
    t.ring(pen);
    t.gutter(pen, wide, high);
    axis(pen, steps, wide);
    t.onAxis.forEach(function (overlay) { overlay(pen, wide, high); });
    return wanted;
  }

  t.picture = picture;

  function ticks() {
    var span = t.shown.to - t.shown.from;
    var least = (span * 96) / Math.max(t.width(), 1);
    var power = Math.pow(10, Math.floor(Math.log10(least)));
    var step_ = [1, 2, 5, 10].map(function (one) { return one * power; }).find(function (one) { return one >= least; });
    step_ = Math.max(1, step_);
    var unit = t.TIMES.slice(0, 4).filter(function (one) { return one[1] <= Math.max(Math.abs(t.shown.to), 1) && step_ >= one[1] / 1000; }).pop() || t.TIMES[0];
    var decimals = Math.max(0, Math.min(3, Math.ceil(-Math.log10(step_ / unit[1]) - 1e-9)));
    var found = [];
    for (var at = Math.ceil(t.shown.from / step_); at * step_ <= t.shown.to; at++) {
      if (at < 0) continue;
      var text = ((at * step_) / unit[1]).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
      found.push([at * step_, at === 0 ? "0" : text + " " + unit[0]]);
    }
    return found;
  }

  function grid(pen, steps, high) {
    pen.strokeStyle = t.look.border;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.beginPath();
    steps.forEach(function (one) {
      var at = Math.round(t.x(one[0])) + 0.5;
      if (at < t.GUTTER) return;
      pen.moveTo(at, t.AXIS);
      pen.lineTo(at, high);
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  function axis(pen, steps, wide) {
    pen.fillStyle = t.look.panelText;
    pen.fillRect(0, 0, wide, t.AXIS);
    pen.fillStyle = t.look.dim;
    pen.font = t.look.font;
    pen.textBaseline = "middle";
    steps.forEach(function (one) {
      var at = t.x(one[0]);
      var wideText = t.textWidth(pen, one[1]);
      if (at < t.GUTTER - 1 || at + 4 + wideText > wide) return;
      pen.fillText(one[1], at + 4, t.AXIS / 2 + 2);
      pen.fillRect(Math.round(at), t.AXIS - 6, 1, 6);
    });
    pen.fillStyle = t.look.border;
    pen.fillRect(0, t.AXIS - 1, wide, 1);
    /* Where the window lies in the whole. */
    var room = wide - t.GUTTER;
    var from = Math.max(0, t.shown.from / t.chart.span), to = Math.min(1, t.shown.to / t.chart.span);
    if (to - from < 0.999) {
      pen.fillStyle = t.look.raised;
      pen.fillRect(t.GUTTER, 0, room, 4);
      pen.fillStyle = t.look.dim;
      pen.fillRect(t.GUTTER + from * room, 0, Math.max(3, (to - from) * room), 4);
    }
    if (t.marked) {
      pen.fillStyle = t.look.accent;
      var left = Math.max(t.x(t.marked[0]), t.GUTTER), right = Math.min(t.x(t.marked[1]), wide);
      if (right > left) pen.fillRect(left, t.AXIS - 4, right - left, 3);
    }
    pen.font = t.look.font;
    pen.fillStyle = t.look.dim;
    pen.fillText(t.many(t.chart.list.length, "rank"), 12, t.AXIS / 2 + 2);
  }

  function marks(pen, high) {
    if (!t.marked) return;
    var left = Math.max(t.x(t.marked[0]), t.GUTTER), right = Math.max(t.x(t.marked[1]), t.GUTTER);
    pen.fillStyle = t.look.accent;
    pen.globalAlpha = t.marked[0] > t.shown.from || t.marked[1] < t.shown.to ? 0.1 : 0;
    pen.fillRect(left, t.AXIS, right - left, high - t.AXIS);
    pen.globalAlpha = 0.8;
    [t.marked[0], t.marked[1]].forEach(function (one) {
      if (t.x(one) >= t.GUTTER) pen.fillRect(Math.round(t.x(one)), t.AXIS, 1, high - t.AXIS);
    });
    pen.globalAlpha = 1;
  }

  t.draw = draw;
})(window.studioTimeline = window.studioTimeline || {});
