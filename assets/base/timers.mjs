/**
 * Timers of a page, by name: starting one again replaces it. After its page was left it does nothing.
 *
 * @returns {(name: string, waitMs: number, act: () => void) => void}
 */
export function pageTimers() {
  /** @type {Record<string, number>} */
  const waiting = {};
  return (name, waitMs, act) => {
    const page = window.location.pathname;
    window.clearTimeout(waiting[name]);
    waiting[name] = window.setTimeout(() => {
      if (window.location.pathname === page) act();
    }, waitMs);
  };
}
