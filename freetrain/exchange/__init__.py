"""What broker and agents tell each other, in files of the state directory."""
