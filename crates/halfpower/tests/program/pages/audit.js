// Stands last in a page under test, after axe-core: takes the theme that the name of its frame asks
// for, opens what is folded, zooms a chart, and reports what axe-core finds to the page around it.
(async () => {
  "use strict";
  document.documentElement.dataset.theme = name.split(" ")[1];
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  document.querySelector('[data-zoom="+"]')?.click();
  const { violations, passes } = await axe.run(document, { resultTypes: ["violations"] });
  const found = violations.map(({ id, impact, help, nodes }) => `${id} (${impact}): ${help}; `
    + `${nodes.length} times, first ${nodes[0].html.slice(0, 300)}`);
  for (const folded of document.querySelectorAll("details")) folded.open = false;
  const root = document.documentElement;
  parent.postMessage({ frame: name, found, passed: passes.length, height: root.scrollHeight,
    overflow: root.scrollWidth - innerWidth }, "*");
})().catch((error) => parent.postMessage({ frame: name, found: [String(error)] }, "*"));
