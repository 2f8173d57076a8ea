// Tables: CSV with the exact values of data-v, quoted as RFC 4180 asks, and sorting by them.
const csvField = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
const exact = (cell) => cell.dataset.v ?? cell.textContent.replace(/^\u2013$/, "");
const csv = (table) => all("tr", table)
  .map((row) => [...row.cells].map((cell) => csvField(cell.dataset.csv ?? exact(cell))).join(","))
  .join("\r\n") + "\r\n";
for (const button of all(".csv")) {
  button.addEventListener("click", () => {
    const text = csv(button.closest("figure").querySelector("table"));
    downloadText(button.dataset.name, "text/csv", text);
  });
}

const sortKey = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
};
const compareKeys = (a, b) => typeof a === "number" ? (typeof b === "number" ? a - b : -1)
  : typeof b === "number" ? 1 : a.localeCompare(b);

for (const table of all(".sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const original = [...body.rows];
  // The number of the sorted column, from 1; negative if it falls; 0 for the original order.
  let order = 0;
  const sort = (wanted) => {
    order = wanted;
    const [column, sign] = [Math.abs(order) - 1, Math.sign(order)];
    heads.forEach((head, index) => {
      head.ariaSort = index === column ? (sign > 0 ? "ascending" : "descending") : null;
    });
    body.append(...(order ? [...original].sort((a, b) =>
      sign * compareKeys(sortKey(a, column), sortKey(b, column))) : original));
  };
  heads.forEach((head, index) => {
    const button = element("button", ...head.childNodes);
    button.type = "button";
    head.append(button);
    button.addEventListener("click", () => {
      sort(order === index + 1 ? -order : index + 1);
      saveView();
    });
  });
  register(`${table.closest("figure").id}.sort`, () => order ? String(order) : "", (text) => {
    const wanted = /^-?\d{1,3}$/.test(text) && Math.abs(text) <= heads.length ? Number(text) : 0;
    if (wanted !== order) sort(wanted);
  });
}
