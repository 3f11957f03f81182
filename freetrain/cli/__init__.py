"""The command line: verbs parse options, call what does the work, show the result."""
