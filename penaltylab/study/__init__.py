"""The study: what runs the notebooks, what they call, and what is left behind."""
