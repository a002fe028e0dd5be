"""Draws the chart's Grafana dashboard as an SVG: dashboard.py DASHBOARD.json PROMETHEUS_URL START END >PICTURE.svg

START and END are seconds since the epoch. Places, units, legends and dark colors are Grafana's.
"""
import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from html import escape

WIDTH, COLUMNS, UNIT, GAP = 960, 24, 21, 6  # pixels; UNIT is the height of the grid's unit
STEP, RATE = 3, 15  # seconds; RATE is $__rate_interval
PALETTE = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#ca95e5"]
COLORS = {"green": "#73bf69", "red": "#f2495c", "blue": "#5794f2"}
BACKGROUND, PANEL, BORDER, TEXT, DIM = "#111217", "#181b1f", "#2c2f36", "#d5d5e0", "#9a9aa8"
CHAR = 5.9  # the mean width of a character of 11 pixels

path, server, start, end = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
out = []


def ask(kind, expr, **arguments):
    """The series that Prometheus answers."""
    for name, value in {"$__rate_interval": f"{RATE}s", "$node": ".*", "$class": ".*"}.items():
        expr = expr.replace(name, value)
    query = urllib.parse.urlencode({"query": expr, **arguments})
    return json.load(urllib.request.urlopen(f"{server}/api/v1/{kind}?{query}"))["data"]["result"]


def formatted(value, unit):
    """A value in a unit of Grafana."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    base, names = {
        "bytes": (1024, ["B", "KiB", "MiB", "GiB", "TiB"]), "Bps": (1000, ["B/s", "kB/s", "MB/s", "GB/s"]),
        "ops": (1000, ["ops/s", "Kops/s"]), "reqps": (1000, ["req/s", "Kreq/s"]),
        "s": (60, ["s", "min", "h"]) if value == 0 or value >= 1 else (1, ["ms"]),
        "short": (1000, ["", "K", "M"]),
    }[unit or "short"]
    value *= 1000 if names == ["ms"] else 1
    while value >= base and len(names) > 1:
        value, names = value / base, names[1:]
    return f"{value:.3g} {names[0]}".strip()


def text(x, y, content, color=TEXT, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    out.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}"{more}>{escape(content)}</text>')


def fitting(content, width):
    """The content, shortened where it is wider."""
    return content if len(content) * CHAR <= width else content[:int(width / CHAR) - 1] + "…"


def stat(panel, x, y, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    value = float(ask("query", panel["targets"][0]["expr"], time=end)[0]["value"][1])
    color = [step["color"] for step in defaults["thresholds"]["steps"] if value >= (step["value"] or 0)][-1]
    value = formatted(value, defaults.get("unit"))
    return text(x + w / 2, y + h * .72, value, COLORS[color], text_anchor="middle", font_size=24) or True


def table(panel, x, y, w, h):
    rows, fields, cells = {}, [], []
    for target in panel["targets"]:
        for series in ask("query", target["expr"], time=end):
            labels, name = series["metric"], f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
            rows.setdefault(str(labels), dict(labels))[name] = float(series["value"][1])
            fields += [field for field in [*sorted(labels), name] if field not in fields]
    organize = next(it["options"] for it in panel["transformations"] if it["id"] == "organize")
    fields = [field for field in fields if not organize["excludeByName"].get(field)]
    names = [organize["renameByName"].get(field, field) for field in fields]
    overrides = {it["matcher"]["options"]: it["properties"][0] for it in panel["fieldConfig"]["overrides"]}
    for row in rows.values():
        cells.append([])
        for field, name in zip(fields, names):
            value, color, override = row.get(field, ""), TEXT, overrides.get(name, {})
            if override.get("id") == "mappings" and field in row:
                mapped = override["value"][0]["options"][str(int(value))]
                value, color = mapped["text"], COLORS[mapped["color"]]
            elif isinstance(value, float):
                value = formatted(value, override.get("value"))
            cells[-1].append((value, color))
    # Columns share the width by their longest content.
    longest = [max(len(name), *(len(row[at][0]) for row in cells)) + 3 for at, name in enumerate(names) if cells]
    left = x + 10
    for at, length in enumerate(longest):
        width = (w - 20) * length / sum(longest)
        text(left, y + 40, fitting(names[at], width), "#6e9fff", font_weight=500)
        for line, row in enumerate(cells):
            text(left, y + 62 + 20 * line, fitting(row[at][0], width), row[at][1])
        left += width
    out.extend([f'<path d="M{x + 8} {y + 47}H{x + w - 8}" stroke="{BORDER}"/>'] if cells else [])
    return bool(cells)


def thinned(points):
    """Points of a line as SVG has them, without those between two of the same height."""
    inner = zip(points, points[1:], points[2:])
    kept = [points[0], *(here for before, here, after in inner if not before[1] == here[1] == after[1]), points[-1]]
    return " ".join(f"{x:.0f},{y:.1f}".removesuffix(".0") for x, y in kept)


def timeseries(panel, x, y, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    custom, unit, lines, total = defaults["custom"], defaults.get("unit"), [], {}
    for target in panel["targets"]:
        for series in ask("query_range", target["expr"], start=start, end=end, step=STEP):
            name = re.sub("{{(.*?)}}", lambda label: series["metric"].get(label[1], ""), target["legendFormat"])
            points = {at: float(value) for at, value in series["values"] if value != "NaN"}
            floor = {at: total.get(at, 0) for at in points}
            if "stacking" in custom:
                total |= (points := {at: value + floor[at] for at, value in points.items()})
            if points:
                lines.append((fitting(name, w - 50), PALETTE[len(lines) % len(PALETTE)], points, floor))
    top = defaults.get("max") or max((max(points.values()) for _, _, points, _ in lines), default=0) * 1.05 or 1
    base = 1024 ** int(math.log(top, 1024)) if unit == "bytes" else 1
    tick = base * next(tick for power in range(-9, 15) for tick in (10 ** power, 2 * 10 ** power, 5 * 10 ** power)
                       if top / base / tick <= 4)
    # The legend has as many lines as it requires.
    legend, used = [[]], 0
    for name, color, _, _ in lines:
        if used and used + len(name) * CHAR > w - 48:
            legend, used = [*legend, []], 0
        legend[-1].append((used, name, color))
        used += len(name) * CHAR + 32
    left, right, upper, lower = x + 62, x + w - 14, y + 32, y + h - 24 - 15 * len(legend)

    across = lambda at: left + (right - left) * (at - start) / (end - start)
    down = lambda value: lower - (lower - upper) * value / top
    for value in (tick * count for count in range(int(top / tick + 1e-9) + 1)):
        out.append(f'<path d="M{left} {down(value):.1f}H{right}" stroke="{BORDER}"/>')
        text(left - 6, down(value) + 4, formatted(value, unit), DIM, text_anchor="end", font_size=10)
    for at in range(int((start + 12) // 60 + 1) * 60, int(end - 12), 60):
        text(across(at), lower + 14, time.strftime("%R", time.gmtime(at)), DIM, text_anchor="middle", font_size=10)
    for _, color, points, floor in lines:
        runs = []
        for at in sorted(points):
            runs += [[]] if not runs or at - runs[-1][-1] > STEP else []
            runs[-1].append(at)
        if custom["drawStyle"] == "bars":
            bars = "".join(f"M{across(at):.1f} {down(points[at]):.0f}V{down(floor[at]):.0f}" for at in points)
            out.append(f'<path d="{bars}" stroke="{color}" stroke-width="{across(STEP) - across(0):.1f}"'
                       f' stroke-opacity="{custom["fillOpacity"] / 100}"/>')
            continue
        for run in runs:
            line = thinned([(across(at), down(points[at])) for at in run])
            out.append(f'<polyline points="{line}" fill="none" stroke="{color}"/>')
            if custom["fillOpacity"]:
                line += " " + thinned([(across(at), down(floor[at])) for at in reversed(run)])
                out.append(f'<polygon points="{line}" fill="{color}" fill-opacity="{custom["fillOpacity"] / 100}"/>')
    for line, entries in enumerate(reversed(legend)):
        for at, name, color in entries:
            out.append(f'<path d="M{x + 12 + at:.0f} {y + h - 12 - 15 * line}h12" stroke="{color}" stroke-width="3"/>')
            text(x + 28 + at, y + h - 8 - 15 * line, name)
    return bool(lines)


dashboard = json.load(open(path))
for panel in dashboard["panels"]:
    place = panel["gridPos"]
    x, y = place["x"] * (WIDTH - GAP) // COLUMNS + GAP, place["y"] * UNIT + 40
    w, h = place["w"] * (WIDTH - GAP) // COLUMNS - GAP, place["h"] * UNIT - GAP
    if panel["type"] == "row":
        out.append(f'<path d="M{x + 3} {y + 8}l4 4l4 -4" fill="none" stroke="{TEXT}"/>')
        text(x + 18, y + 14, panel["title"], font_size=13, font_weight=500)
        continue
    out.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="2" fill="{PANEL}" stroke="{BORDER}"/>')
    text(x + 8, y + 17, fitting(panel["title"], w - 12), font_weight=500)
    if not {"stat": stat, "table": table, "timeseries": timeseries}[panel["type"]](panel, x, y, w, h):
        text(x + w / 2, y + h / 2 + 8, "No data", DIM, text_anchor="middle", font_size=13)
height = 40 + UNIT * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
text(GAP + 2, 26, dashboard["title"], font_size=16, font_weight=500)
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
      f'font-family="Inter, Helvetica, Arial, sans-serif" font-size="11"><rect width="{WIDTH}" height="{height}"',
      f'fill="{BACKGROUND}"/>', *out, "</svg>", sep="\n")
