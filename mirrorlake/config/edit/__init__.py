"""Change settings: drafts, a preview of what a change means, and the file it is saved to."""
