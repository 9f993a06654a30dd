"""The console as a page of its own: Voilà's parts behind a token, one kernel per open page.

`gate` lets requests in, `server` starts and ends kernels and sends the page, `kernel` runs in each of them.
docs/decisions/0054-the-console-as-a-page.md says why.
"""
