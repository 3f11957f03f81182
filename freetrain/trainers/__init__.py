"""Trainers: the elastic training jobs that users submit."""
