// anywidget gives a script 2 s to load. If it takes longer, as on a busy machine, anywidget throws away every message to its
// widget for as long as the page is open. Here the widget takes its messages itself, and asks for what was thrown away.
async function initialize({ model }) {
  const found = model.widget_manager?.get_model?.(model.get("own_id"));
  const whole = await Promise.resolve(found).catch(() => null);
  if (!whole?.comm) return;
  const take = Object.getPrototypeOf(whole.constructor.prototype)._handle_comm_msg;
  whole.comm.on_msg((message) => take.call(whole, message));
  model.send({ resend: true });
}

