"""How a replay asks policies: who gets which node, decided anew at every event."""
