"""What pages without Plotly are made of: a style, tables and small drawings in SVG."""
