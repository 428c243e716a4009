/* What the scripts of several pages share. Scripts run in the order of their names, and this one comes before theirs. */
(function () {
  "use strict";

  /* Waiting, a thing of each name at a time. What waits on a page ends with it: it is not meant for the one after. */
  window.studioTimers = function () {
    var waiting = {};
    return function later(name, wait, act) {
      var page = window.location.pathname;
      window.clearTimeout(waiting[name]);
      waiting[name] = window.setTimeout(function () {
        if (window.location.pathname === page) act();
      }, wait);
    };
  };
})();
