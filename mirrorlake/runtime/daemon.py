"""The name of `mirrorlake.daemon` until 0.2.0, which settings of clusters hold; it goes after one release.

It works, but pyarrow is loaded before the daemon chooses its memory pool.
"""

from mirrorlake.daemon import main

if __name__ == "__main__":
    main()
