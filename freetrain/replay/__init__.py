"""Replay of scheduler logs: what FreeTrain would have done."""
