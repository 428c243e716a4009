"""Two runs side by side: matched nodes, parts of the finish, differences."""
