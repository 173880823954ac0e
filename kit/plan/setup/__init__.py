"""From what a bare VM has to the plan that makes it ready: one file for each area, and the way back."""
