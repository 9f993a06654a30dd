"""What happened to a mirror: read from the tables that hold it already, and outages of clusters, which a running mirror stores."""

from mirrorlake.events.event import Event, Events
from mirrorlake.events.feed import EventFeed
from mirrorlake.events.outages import OutageWatch
from mirrorlake.events.read import read_events
