"""The pages. Dash imports each module that does not begin with an underscore."""
