"""A campaign's run directory as one HTML file that needs nothing else, since it is mailed and opened years later.

Charts are SVG, heat maps are tables: a chart library would add megabytes of script and ask for a laxer policy.
"""
