"""The planner library: which elastic trainer gets how many idle nodes."""
