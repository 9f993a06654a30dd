// A chart that is always drawn from its whole figure, as soon as it is in sight; what a person zoomed remains.

// Plotly (5 MB) comes once for a page, and only when a chart is first in sight.
async function plotly(model) {
  const here = Symbol.for("mirrorlake.plotly");
  if (globalThis[here]) return globalThis[here];
  const source = await new Promise((resolve) => {
    function take(message, buffers) {
      if (message?.plotly === undefined) return;
      model.off("msg:custom", take);
      resolve(buffers[0]);
    }
    model.on("msg:custom", take);
    model.send({ plotly: true });
  });
  const parts = ["const module = { exports: {} };\n", source, "\nexport default module.exports;"];
  const url = URL.createObjectURL(new Blob(parts, { type: "text/javascript" }));
  globalThis[here] ??= (await import(url)).default;
  URL.revokeObjectURL(url);
  return globalThis[here];
}

function render({ model, el }) {
  const place = document.createElement("div");
  el.classList.add("ml-chart");
  el.append(place);
  let drawing = null, again = false, drawn = false, ended = false, width = 0;

  async function drawAll() {
    const Plotly = await plotly(model);
    while (again) {
      again = false;
      const { data, layout } = structuredClone(model.get("figure"));
      if (ended || !data) {
        if (drawn) Plotly.purge(place);
        drawn = false;
        continue;
      }
      await Plotly.react(place, data, layout, { displaylogo: false });
      if (drawn && width !== el.clientWidth) await Plotly.Plots.resize(place);
      drawn = true;
      width = el.clientWidth;
    }
  }
  // One drawing at a time; what comes meanwhile, or out of sight, is drawn next.
  function draw() {
    again = true;
    if (!ended && (el.clientWidth === 0 || (!drawn && !model.get("figure").data))) return;
    drawing ??= drawAll().then(
      () => { drawing = null; if (again) draw(); },
      (error) => { drawing = null; console.error(error); },
    );
  }
  const sight = new ResizeObserver(() => { if (again || el.clientWidth !== width) draw(); });
  model.on("change:figure", draw);
  sight.observe(el);
  return () => {
    sight.disconnect();
    model.off("change:figure", draw);
    ended = true;
    if (drawn) draw();
  };
}
export default { initialize, render };
