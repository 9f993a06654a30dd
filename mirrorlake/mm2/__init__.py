"""MirrorMaker 2: take over where it ended, and write the topics that its clients read."""
