// Stands in the page around the frames: writes down what all of them report.
const seen = [];
addEventListener("message", (event) => {
  seen.push(event.data);
  if (seen.length < document.querySelectorAll("iframe").length) return;
  const result = document.createElement("pre");
  result.id = "seen";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
});
