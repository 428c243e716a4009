"""What stands around every page: activity, inspector, and the page for wrong addresses."""
