// The address of what is shown, in the browser's bar and as a link to copy; and back and forward.

function render({ model, el }) {
  const link = document.createElement("a"), copy = document.createElement("button"), note = document.createElement("span");
  link.className = "ml-address-link";
  copy.className = "ml-address-copy";
  copy.type = "button";
  copy.textContent = "Copy link";
  note.className = "ml-address-note";
  note.textContent = model.get("note");
  el.append(link, copy, note);

  const shown = () => location.pathname.slice(1);
  function open() { model.send({ open: shown() }); }
  function draw() {
    const path = model.get("path");
    // Empty until the kernel has opened what this page was asked for.
    if (path && path !== shown()) history.pushState(null, "", "/" + path);
    link.href = link.textContent = location.origin + "/" + (path || shown());
  }
  function put() {
    navigator.clipboard?.writeText(link.href).then(() => {
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy link"; }, 1500);
    });
  }
  copy.addEventListener("click", put);
  window.addEventListener("popstate", open);
  model.on("change:path", draw);
  draw();
  open();
  return () => {
    window.removeEventListener("popstate", open);
    model.off("change:path", draw);
  };
}
export default { initialize, render };
