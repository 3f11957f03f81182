"""The state directory: its database, and the files that broker and agents share."""
