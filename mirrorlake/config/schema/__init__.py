"""The settings file as values: clusters, lake, flows, and what each of them may say."""
