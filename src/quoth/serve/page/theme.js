// Light, dark, or as the system has it. A plain script in the head: the page is never shown in the wrong colours first.
(() => {
  const NEXT = { automatic: "light", light: "dark", dark: "automatic" };
  const KEY = "quoth-theme";

  function stored() {
    try {
      return localStorage.getItem(KEY) in NEXT ? localStorage.getItem(KEY) : "automatic";
    } catch {
      return "automatic"; // storage is switched off
    }
  }

  function apply(theme) {
    if (theme === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  function name(theme) {
    document.getElementById("theme-name").textContent = theme[0].toUpperCase() + theme.slice(1);
    document.getElementById("theme-button").setAttribute("aria-label", `Colours: ${theme}. Change to ${NEXT[theme]}`);
  }

  let theme = stored();
  apply(theme);
  addEventListener("DOMContentLoaded", () => {
    name(theme);
    document.getElementById("theme-button").addEventListener("click", () => {
      theme = NEXT[theme];
      apply(theme);
      name(theme);
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // it holds until the page is loaded again
      }
    });
  });
})();
