"""What users ask for: submit, cancel, pause, look, rehearse. No Slurm in here."""
