// The server counts characters as Python does, in code points. Strings of JavaScript count UTF-16 units.

const PAIRED = /[\ud800-\udbff][\udc00-\udfff]/;

/** Where each of some offsets in code points, in any order, is in the string. */
export function unitOffsets(text, points) {
  if (!PAIRED.test(text)) return points.map((point) => Math.min(point, text.length));
  const order = points.map((_, i) => i).sort((a, b) => points[a] - points[b]);
  const units = new Array(points.length);
  let unit = 0;
  let passed = 0;
  for (const i of order) {
    while (passed < points[i] && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      passed += 1;
    }
    units[i] = unit;
  }
  return units;
}

/** A text in three: before the characters [start, end) in code points, these, and after them. */
export function cut(text, start, end) {
  const [first, past] = unitOffsets(text, [start, end]);
  return [text.slice(0, first), text.slice(first, past), text.slice(past)];
}
