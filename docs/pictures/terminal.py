"""Draws what a terminal shows, from standard input: terminal.py TITLE COLUMNS <TEXT >SVG. It requires rich."""
import os
import re
import sys

from rich.console import Console
from rich.text import Text

title, columns = sys.argv[1], int(sys.argv[2])
console = Console(record=True, width=columns, color_system="truecolor", force_terminal=True, file=open(os.devnull, "w"))
indent = 0
for line in sys.stdin.read().splitlines():
    text = Text.from_ansi(line)
    # A sentence in the last column of `status` is broken within its column.
    indent = text.plain.index("WHAT") if text.plain.endswith("  WHAT") else indent
    head, rest = text.divide([indent]) if len(text) > columns else (text, Text())
    for part in rest.wrap(console, columns - indent, overflow="fold") if rest else [rest]:
        console.print(head + part, soft_wrap=True, highlight=False)
        head = Text(" " * indent)
console.print()  # The window cuts off a part of its last line.
svg = console.export_svg(title=title, unique_id="terminal")
# The fonts of rich are on another host.
svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
svg = svg.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, Liberation Mono")
svg = svg.replace("font-family: arial", "font-family: Helvetica, Arial, Liberation Sans, sans-serif")
print(re.sub(r"\s*<!--.*?-->", "", svg))
