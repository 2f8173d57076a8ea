// Stands last in a list of runs: searches, chooses and sorts as a reader would, and writes what it
// saw as JSON into an element of its own.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)];
  const number = (row) => row.cells[0].textContent.trim();
  const shown = () => all("#runs tbody tr").filter((row) => row.offsetParent).map(number);
  const field = document.querySelector("input[type=search]");
  const search = (words) => {
    field.value = words;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return shown();
  };
  const saw = { errors: complaints };
  saw.shown_first = shown();
  saw.shown_two = search("  ONE alpha");
  saw.shown_none = search("alpha two");
  saw.shown_all = search("");
  const button = document.querySelector("form.choice > button");
  saw.disabled = [button.disabled];
  const boxes = all("#runs tbody input");
  for (const box of [boxes[0], boxes[2]]) {
    box.click();
    saw.disabled.push(button.disabled);
  }
  saw.button = button.textContent;
  saw.sent = new URLSearchParams(new FormData(button.form)).toString();
  document.querySelector("#runs th button").click();
  saw.sorted = all("#runs tbody tr").map(number);
  const result = document.createElement("pre");
  result.id = "test-result";
  result.textContent = JSON.stringify(saw);
  document.body.append(result);
})();
