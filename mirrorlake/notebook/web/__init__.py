"""The console as a read-only page; only this package needs Starlette and uvicorn."""

from mirrorlake.notebook.web.page import build_app, serve
