"""How a mirror stands, what happened to it, and the metrics that it serves while it runs."""

from mirrorlake.status.events import Event, EventFeed, Events, read_events
from mirrorlake.status.serve import serving_metrics
