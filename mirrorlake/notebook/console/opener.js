// HTML has no script of its own: one listener of the page opens the links in all that the console shows.
const OPENING = ["click", "keydown"];

function render({ model, el }) {
  el.style.display = "none";
  function open(event) {
    const link = event.target.closest?.("[data-opens]");
    if (!link || (event.type === "keydown" && event.key !== "Enter")) return;
    if (el.closest(".ml-console")?.contains(link)) model.send({ open: link.dataset.opens });
  }
  for (const name of OPENING) document.addEventListener(name, open);
  return () => OPENING.forEach((name) => document.removeEventListener(name, open));
}
export default { initialize, render };
