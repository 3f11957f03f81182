"""What a program says before it exits with a status other than 0."""


class ComplaintError(Exception):
    """A program's words on its standard error."""
