"""What a site, or a user there, sets once for all trainers; docs/job-file.md."""
