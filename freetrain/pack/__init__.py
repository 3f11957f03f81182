"""Several small trainers on one node, which share its CPUs."""
