// Elements are made here and nowhere else. Text of users and documents only ever becomes text nodes, never HTML.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/**
 * An element with its attributes, listeners and children.
 *
 * properties: `class`, any attribute (null and false leave it out, true is an empty one), `onclick` and the like.
 * children: elements, texts, lists of them; null and false are left out.
 */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (given(value)) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter(given));
  return made;
}

const given = (value) => value !== null && value !== undefined && value !== false;

/** A button that does not send a form. */
export function button(properties, ...children) {
  return el("button", { type: "button", ...properties }, ...children);
}

/** One of the icons of index.html, hidden from screen readers. */
export function icon(name, extra = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon ${extra}`.trim());
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Tell a screen reader. */
export function announce(text) {
  $("announce").textContent = text;
}

/** 1 page, 2 pages, 1,234 pages. */
export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** A probability in per cent. What is not certain is never shown as 0 or 100. */
export function percent(probability) {
  const rounded = Math.round(probability * 100);
  if (rounded === 0 && probability > 0) return "< 1 %";
  if (rounded === 100 && probability < 1) return "> 99 %";
  return `${rounded} %`;
}
