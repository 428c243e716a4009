"""How grids look: the theme of ag-grid in the studio's colours."""

from __future__ import annotations

GRID_THEME = """themeQuartz.withParams({
    accentColor: 'var(--cs-accent)', backgroundColor: 'var(--cs-panel)', foregroundColor: 'var(--cs-text)',
    borderColor: 'var(--cs-border)', browserColorScheme: 'inherit', chromeBackgroundColor: 'var(--cs-raised)',
    headerBackgroundColor: 'var(--cs-raised)', headerTextColor: 'var(--cs-text)', headerFontWeight: 500,
    oddRowBackgroundColor: 'var(--cs-panel)', rowHoverColor: 'var(--cs-raised)',
    selectedRowBackgroundColor: 'var(--cs-accent-soft)', inputBackgroundColor: 'var(--cs-bg)',
    inputBorder: 'solid 1px var(--cs-border)', inputPlaceholderTextColor: 'var(--cs-dim)',
    menuBackgroundColor: 'var(--cs-panel)', menuTextColor: 'var(--cs-text)',
    tooltipBackgroundColor: 'var(--cs-panel)', tooltipTextColor: 'var(--cs-text)',
    iconColor: 'var(--cs-dim)', iconButtonHoverColor: 'var(--cs-text)',
    fontFamily: 'inherit', fontSize: 12.5, headerFontSize: 12.5, rowHeight: 26, headerHeight: 30, listItemHeight: 26,
    spacing: 5, cellHorizontalPadding: 6, borderRadius: 4, wrapperBorderRadius: 5, rowBorder: {color: 'var(--cs-row-line)'}
})"""
"""The expression that makes it, for `dashGridOptions`."""
