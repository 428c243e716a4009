"""What several pages use: widgets, exports, requests of buttons, static parts, the open session."""
