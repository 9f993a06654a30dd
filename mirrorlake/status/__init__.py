"""How a mirror stands, and what happened to it."""

from mirrorlake.status.events import Event, EventFeed, Events, read_events
