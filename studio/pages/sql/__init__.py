"""The SQL page: questions to the open job and the workspace, in words of one's own."""
