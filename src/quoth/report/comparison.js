// Sorts a table by the column whose heading is pressed; what is not known stays at the end.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const first = head.dataset.first || "descending";
      const other = first === "descending" ? "ascending" : "descending";
      const order = now === first ? other : first;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      sort(table.tBodies[0], column, order === "ascending" ? 1 : -1);
      document.getElementById("sorted").textContent = `Sorted by ${button.textContent}, ${order}`;
    });
  });
}
function sort(body, column, sign) {
  const value = (row) => row.cells[column].dataset.value;
  const compare = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y);
  };
  body.append(...[...body.rows].sort(compare));
}
