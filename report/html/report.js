"use strict";
// A report is whole without this: it adds sorting and copying only.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const body of table.tBodies) sort(body, column, down ? -1 : 1);
    });
  });
}

function sort(body, column, sign) {
  const rows = [...body.rows].filter((row) => row.cells.length > column);
  const value = (row) => {
    const cell = row.cells[column];
    if (cell.dataset.v === undefined) return cell.textContent.trim();
    return cell.dataset.v === "" ? Infinity : Number(cell.dataset.v);
  };
  const order = (a, b) => (typeof a === "number" ? (a === b ? 0 : a < b ? -1 : 1) : a.localeCompare(b));
  rows.sort((one, other) => sign * order(value(one), value(other)));
  body.append(...rows);
}

for (const block of document.querySelectorAll("pre.copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  block.after(button);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
