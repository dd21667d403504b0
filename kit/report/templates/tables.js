// Make each `table[data-sortable]` sortable and add a field that filters its rows. The header row has `th[data-sort]`,
// `text` or `number`. A cell may have `data-value`, which is sorted instead of its text. The rows of the first `tbody`
// are sorted; missing numbers come last in both directions. A table that is already sorted says so with `aria-sort`.
"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0], rows = [...body.rows], order = new Intl.Collator("en", {numeric: true});
  const headers = [...table.tHead.rows[0].cells];
  const value = (row, column, kind) => {
    const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
    return kind === "number" ? parseFloat(text.replaceAll(",", "")) : text;
  };
  const sort = (column, kind, sign) => {
    const keyed = rows.map(row => [row, value(row, column, kind)]);
    keyed.sort(([, a], [, b]) => {
      if (kind !== "number") return sign * order.compare(a, b);
      return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : sign * (a - b);
    });
    body.append(...keyed.map(([row]) => row));
  };
  headers.forEach((header, column) => {
    if (!header.dataset.sort) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const direction = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const each of headers) each.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", direction);
      sort(column, header.dataset.sort, direction === "ascending" ? 1 : -1);
    });
  });

  const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const field = document.createElement("p"), label = document.createElement("label");
  const name = document.createElement("span"), input = document.createElement("input");
  const status = document.createElement("span");
  field.className = "filter";
  input.type = "search";
  status.setAttribute("role", "status");
  name.className = "vh";
  name.textContent = table.caption ? `: ${table.caption.textContent.trim()}` : "";
  label.append("Filter rows", name, input);
  field.append(label, status);
  (table.closest(".scroll") ?? table).before(field);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every(word => texts.get(row).includes(word));
      shown += !row.hidden;
    }
    status.textContent = words.join("") ? `${shown} of ${rows.length} rows` : "";
  });
}
