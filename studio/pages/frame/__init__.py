"""The frame around every page: bar, navigation, activity, inspector, and the page for wrong addresses."""
