"""Job files: what a user submits, one trainer a file; docs/job-file.md."""
