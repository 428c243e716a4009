/* Pan, zoom, and the glide to a new window. */
(function (t) {
  "use strict";

  function go(from, to, atOnce) {
    var target = t.clamp(from, to);
    if (atOnce || window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      t.animation = null;
      t.shown = target;
    } else {
      t.animation = { from: t.shown, to: target, began: performance.now() };
    }
    t.draw();
    t.rested();
  }

  function step(now) {
    var done = Math.min(1, Math.max(0, (now - t.animation.began) / 110));
    var ease = 1 - Math.pow(1 - done, 3);
    t.shown = { from: t.animation.from.from + (t.animation.to.from - t.animation.from.from) * ease, to: t.animation.from.to + (t.animation.to.to - t.animation.from.to) * ease };
    if (done === 1) {
      t.shown = t.animation.to;
      t.animation = null;
    }
  }

  function target() {
    return t.animation ? t.animation.to : t.shown;
  }

  function pan(share) {
    var now = target(), by = (now.to - now.from) * share;
    go(now.from + by, now.to + by);
  }

  function zoom(factor, px, atOnce) {
    var now = target();
    var share = px === null ? 0.5 : (px - t.GUTTER) / t.width();
    var at = now.from + share * (now.to - now.from);
    var wide = (now.to - now.from) / factor;
    if (wide < t.NARROWEST_NS) wide = t.NARROWEST_NS;
    go(at - share * wide, at + (1 - share) * wide, atOnce);
  }

  function fit() {
    var all = t.whole();
    go(all.from, all.to);
  }

  t.go = go;
  t.step = step;
  t.target = target;
  t.pan = pan;
  t.zoom = zoom;
  t.fit = fit;
})(window.studioTimeline = window.studioTimeline || {});
