"""The program in every lease: it watches, launches, re-forms, and cleans up."""
