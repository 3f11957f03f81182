"""Reports of replays: figures for programs, tables and pages for people."""
