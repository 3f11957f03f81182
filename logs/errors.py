"""What can go wrong with a scheduler log, by what the caller should do next.

LogError
├── UnreadableLogError   tell the user: the file's content is not what it claims to be
└── UnusableLogError     tell the user: a readable log that this request does not fit
"""


class LogError(Exception):
    """A scheduler log cannot be used as asked."""


class UnreadableLogError(LogError):
    """A log, or a line of it, cannot be read.

    Attributes:
        path: The file, as the user named it.
        line_number: Line from 1, or None where the whole file is meant.
        field: The field's name, or None where the whole line is meant.
        why: What was found and what was expected.
        can_skip: Whether only this one line is bad, so that a reader that
            tolerates one more bad line would go on.
    """

    def __init__(
        self,
        path: str,
        line_number: int | None,
        field: str | None,
        why: str,
        *,
        can_skip: bool = False,
    ) -> None:
        self.path = path
        self.line_number = line_number
        self.field = field
        self.why = why
        self.can_skip = can_skip
        line = f", line {line_number}" if line_number is not None else ""
        named = f", field {field!r}" if field is not None else ""
        super().__init__(f"{path}{line}{named}: {why}")


class UnusableLogError(LogError):
    """A readable log does not fit what was asked of it."""
