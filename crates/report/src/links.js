// Comforts of pages that lead to others: search in a table as you type, a button that knows how
// many rows are chosen, and a page of a run in progress that shows its newest state.
(() => {
  "use strict";
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  for (const field of all("input[data-table]")) {
    const rows = all("tbody tr", document.getElementById(field.dataset.table));
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const show = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row, i) => { row.hidden = !words.every((word) => texts[i].includes(word)); });
    };
    field.addEventListener("input", show);
    show();
  }

  for (const form of all("form.choice")) {
    const button = form.querySelector("button");
    const label = button.textContent;
    const count = () => {
      const chosen = all("input:checked", form).length;
      button.disabled = 2 > chosen;
      button.textContent = chosen ? `${label} (${chosen})` : label;
    };
    form.addEventListener("change", count);
    count();
  }

  const live = document.querySelector("[data-etag]");
  if (live) {
    const says = live.querySelector(".state");
    const later = () => { setTimeout(look, 2000); };
    const look = async () => {
      if (document.hidden) return later();
      try {
        const headers = { "If-None-Match": live.dataset.etag };
        const options = { method: "HEAD", cache: "no-store", headers };
        const answer = await fetch(location.href, options);
        if (answer.status === 200) return location.reload();
        says.textContent = answer.status === 304 ? "" : `The server answered ${answer.status}.`;
      } catch { says.textContent = "The server does not answer."; }
      later();
    };
    later();
  }
})();
