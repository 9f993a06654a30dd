"""The progress of long work: whoever works reports numbers, and the display is handed in from above.

Work that takes long is given a `Tell` and calls it with what it knows anyway; no query is run and no cluster is asked for
progress alone. A `Board` keeps these reports and has a `Display` draw them: bars in a notebook, bars in a terminal, else one
log line every few seconds. Only the thread that made the board draws, so that nothing from Spark's threads ends up below
a cell of somebody else.
"""
