"""The console served as a page of its own: Voilà's parts behind a token, one kernel per open page.

Each kernel runs `notebook/console/page.py`, which must not load this package, as that loads the server.
"""

from mirrorlake.notebook.web.server import serve
