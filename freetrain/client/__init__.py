"""The state directory as users' commands see it: submit, change, status, curves."""
