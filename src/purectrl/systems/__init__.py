"""Systems to control: equations in the docstrings, no constants of any algorithm."""
