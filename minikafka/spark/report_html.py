"""The report as one HTML file for people: no scripts from elsewhere, no fonts, nothing to load. Made from the report's dictionary alone."""

from __future__ import annotations

from html import escape
from typing import Any

from minikafka.counted import counted
from minikafka.spark import trend

STATES = {
    "match": ("#2e9e6b", "equal and intact"),
    "lagging": ("#e0b040", "equal, but shorter"),
    "pending": ("#8f7bd6", "differs above the high watermark only"),
    "single": ("#7aa7c7", "only copy, checked against itself"),
    "empty": ("#c9d1d9", "no records"),
    "skipped": ("#b0a090", "nothing to compare or unreadable"),
    "missing": ("#e8703a", "a replica that should be here is missing"),
    "corrupt": ("#a3461f", "damaged"),
    "divergent": ("#d8412f", "differs from the others"),
    "lost": ("#7a0c2e", "acknowledged records are lost"),
}
PARTITIONS_DRAWN_MAX = 2000
FINDINGS_DRAWN_MAX = 200
SOUND = {"MATCH", "EMPTY", "SINGLE"}
_EPOCH_COLOURS = ("#5b8def", "#48b0a3", "#e0a13c", "#b06fc9", "#7fa650", "#d97a6c", "#6c7fd9", "#a08a5b")


def html(report: dict[str, Any], runs: list[dict[str, Any]] | None = None) -> str:
    """The whole page; `runs` (see trend.py): this run and those before it."""
    outcome = report["outcome"]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width,initial-scale=1'>",
        f"<title>Audit {escape(outcome)}: {escape(report['cluster']['id'] or 'log directories')}</title><style>{_CSS}</style></head><body>",
        _banner(report), _numbers(report), _verdicts(report), _heat_map(report), _findings(report), trend.html(runs or []),
        _fence(report), _checks(report),
        "</body></html>",
    ]  # fmt: skip
    return "\n".join(parts)


def _banner(report: dict[str, Any]) -> str:
    said = {
        "PASS": "Every replica that was compared holds the same records, and each log is intact.",
        "FAIL": "Replicas differ, or a log is damaged. The findings are below, worst first.",
        "INCOMPLETE": "Not everything could be compared, so this is no proof.",
    }[report["outcome"]]
    cluster, run = report["cluster"], report["run"]
    where = f"cluster <b>{escape(cluster['id'] or 'unknown')}</b> · brokers {escape(', '.join(cluster['brokers']))}"
    when = f"{escape(run['started'])} · {run['seconds']:.1f} s · engine {escape(run['engine'])} · level {escape(run['level'])}"
    return (
        f"<header class='{report['outcome'].lower()}'><div class='seal'>{_seal(report['outcome'])}</div><div><h1>{escape(report['outcome'])}"
        f"</h1><p>{said}</p><p class='dim'>{where}<br>{when} · minikafka {escape(run['version'])}</p></div></header>"
    )


def _seal(outcome: str) -> str:
    mark = {"PASS": "M20 33 L29 42 L45 23", "FAIL": "M22 22 L42 42 M42 22 L22 42", "INCOMPLETE": "M32 18 L32 36 M32 44 L32 46"}[outcome]
    return (
        "<svg viewBox='0 0 64 64' width='72' height='72'><circle cx='32' cy='32' r='29' fill='none' stroke='currentColor' stroke-width='4'/>"
        f"<path d='{mark}' fill='none' stroke='currentColor' stroke-width='6' stroke-linecap='round' stroke-linejoin='round'/></svg>"
    )


def _numbers(report: dict[str, Any]) -> str:
    summary = report["summary"]
    rows = (
        ("partitions", f"{summary['partitions']:,}"), ("replicas", f"{summary['replicas']:,}"),
        ("batches compared", f"{summary['batches_compared']:,}"), ("records compared", f"{summary['records_compared']:,}"),
        ("bytes compared", _bytes(summary["bytes_compared"])), ("errors", f"{summary['errors']:,}"),
        ("warnings", f"{summary['warnings']:,}"), ("notes", f"{summary['notes']:,}"),
    )  # fmt: skip
    return "<section class='numbers'>" + "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in rows) + "</section>"


def _verdicts(report: dict[str, Any]) -> str:
    """One row a topic: how many partitions of each verdict."""
    topics: dict[str, dict[str, Any]] = {}
    for one in report["partitions"]:
        row = topics.setdefault(one["topic"], {"partitions": 0, "batches": 0, "records": 0, "verdicts": {}})
        row["partitions"] += 1
        row["batches"] += one["batches_compared"]
        row["records"] += one["records_compared"]
        row["verdicts"][one["verdict"]] = row["verdicts"].get(one["verdict"], 0) + 1
    body = []
    order = sorted(topics.items(), key=lambda item: (set(item[1]["verdicts"]) <= SOUND, item[0]))
    for topic, row in order[:PARTITIONS_DRAWN_MAX]:
        chips = "".join(f"<span class='chip {name.lower()}'>{name} {count}</span>" for name, count in sorted(row["verdicts"].items()))
        body.append(
            f"<tr><td>{escape(topic)}</td><td class='n'>{row['partitions']:,}</td><td class='n'>{row['batches']:,}</td>"
            f"<td class='n'>{row['records']:,}</td><td>{chips}</td></tr>"
        )
    head = "<tr><th>topic</th><th class='n'>partitions</th><th class='n'>batches compared</th><th class='n'>records</th><th>verdicts</th></tr>"
    hidden = len(order) - len(body)
    more = f"<p class='dim'>{counted(hidden, 'more topic')} in report.json.</p>" if hidden > 0 else ""
    return f"<section><h2>Topics</h2><table>{head}{''.join(body)}</table>{more}</section>"


def _heat_map(report: dict[str, Any]) -> str:
    """Partitions from left to right, brokers from top to bottom; one square a replica."""
    brokers = sorted({row["broker"] for one in report["partitions"] for row in one["replicas"]} | set(report["cluster"]["brokers"]))
    by_topic: dict[str, list[dict[str, Any]]] = {}
    worst_first = sorted(report["partitions"], key=lambda one: one["verdict"] in SOUND)
    for one in sorted(worst_first[:PARTITIONS_DRAWN_MAX], key=lambda one: (one["topic"], one["partition"])):
        by_topic.setdefault(one["topic"], []).append(one)
    used = set()
    blocks = []
    per_line = 60
    for topic, ones in by_topic.items():
        lines = []
        for start in range(0, len(ones), per_line):
            chosen = ones[start : start + per_line]
            squares = []
            for column, one in enumerate(chosen):
                states = one["replica_states"]
                for line, broker in enumerate(brokers):
                    state = states.get(broker, "")
                    if not state:
                        continue
                    used.add(state)
                    tip = f"{topic}-{one['partition']} on broker {broker}: {STATES[state][1]}"
                    squares.append(
                        f"<rect x='{column * 16}' y='{line * 16}' width='14' height='14' rx='3' fill='{STATES[state][0]}'>"
                        f"<title>{escape(tip)}</title></rect>"
                    )
            labels = "".join(f"<text x='-6' y='{line * 16 + 11}' text-anchor='end'>{escape(b)}</text>" for line, b in enumerate(brokers))
            room = 12 + 7 * max((len(broker) for broker in brokers), default=1)
            lines.append(
                f"<svg class='map' width='{room + len(chosen) * 16}' height='{len(brokers) * 16}' "
                f"viewBox='{-room} 0 {room + len(chosen) * 16} {len(brokers) * 16}'>{labels}{''.join(squares)}</svg>"
            )
        blocks.append(f"<div class='topic'><h3>{escape(topic)}</h3>{''.join(lines)}</div>")
    legend = "".join(
        f"<span><i style='background:{colour}'></i>{text}</span>" for state, (colour, text) in STATES.items() if state in used
    )
    hidden = len(report["partitions"]) - PARTITIONS_DRAWN_MAX
    more = f"<p class='dim'>{counted(hidden, 'more partition')} in report.json.</p>" if hidden > 0 else ""
    return f"<section><h2>Replicas</h2><p class='legend'>{legend}</p><div class='maps'>{''.join(blocks)}</div>{more}</section>"


def _findings(report: dict[str, Any]) -> str:
    found = report["findings"]
    if not found:
        return "<section><h2>Findings</h2><p class='quiet'>None. Nothing to see, and that is the point.</p></section>"
    order = {"error": 0, "warning": 1, "note": 2}
    ones = sorted(found, key=lambda finding: order[finding["level"]])[:FINDINGS_DRAWN_MAX]
    partitions = {(one["topic"], one["partition"]): one for one in report["partitions"]}
    cards = [_card(finding, partitions.get((finding["topic"], finding["partition"]))) for finding in ones]
    total = sum(row["count"] for row in report["finding_counts"])
    more = f"<p class='dim'>{counted(total - len(ones), 'more finding was', 'more findings were')} counted but not kept.</p>" if total > len(ones) else ""
    return f"<section><h2>Findings</h2>{''.join(cards)}{more}</section>"


def _card(finding: dict[str, Any], partition: dict[str, Any] | None) -> str:
    place = f"{finding['topic']}-{finding['partition']}" if finding["topic"] else "log directory"
    at = f" at offset {finding['offset']:,}" if finding["offset"] >= 0 else ""
    brokers = f"broker {', '.join(finding['brokers'])}" if finding["brokers"] else ""
    cause = f"<p class='cause'><b>Likely:</b> {escape(finding['cause'])}.</p>" if finding["cause"] else ""
    remedy = f"<p class='cause'><b>What to do:</b> {escape(finding['remedy'])}</p>" if finding.get("remedy") else ""
    details = finding["details"]
    majority = f"<p class='dim'>majority: {escape(', '.join(details['majority']))}</p>" if details.get("majority") else ""
    file = f"<p class='dim mono'>{escape(finding['file'])}</p>" if finding["file"] else ""
    ribbon = _ribbon(partition, finding) if partition and finding["level"] != "note" else ""
    return (
        f"<article class='{finding['level']}' id='{finding['id']}'><h3><span class='chip {finding['level']}'>{finding['level']}</span> "
        f"{escape(place)}{at} <span class='dim'>{escape(brokers)}</span> <code>{finding['check']}</code> <a href='#{finding['id']}'>"
        f"{finding['id']}</a></h3><p>{escape(finding['message'])}.</p><p class='dim'>{escape(finding['meaning'])}</p>{cause}{remedy}{majority}"
        f"{file}{ribbon}{_sides(details.get('sides'))}{_hex(details.get('hex'))}</article>"
    )


def _ribbon(partition: dict[str, Any], finding: dict[str, Any]) -> str:
    """One bar a replica over the offsets, coloured by leader epoch; the fence is the frame, high watermarks are ticks."""
    rows = partition["replicas"]
    if not rows:
        return ""
    low, high = min(row["log_start"] for row in rows), max(max(row["log_end"], row["high_watermark"] or 0) for row in rows)
    high = min(high, 2 * max(row["log_end"] for row in rows) + 10)
    span = max(1, high - low)
    width, left = 760, 90

    def x(offset: int) -> float:
        return float(left + width * (min(max(offset, low), high) - low) / span)

    bars = []
    for line, row in enumerate(rows):
        y = 22 + line * 22
        bars.append(f"<text x='{left - 8}' y='{y + 11}' text-anchor='end'>broker {escape(row['broker'])}</text>")
        starts = [(epoch, max(start, row["log_start"])) for epoch, start in row["epochs"] if start < row["log_end"]] or [(0, row["log_start"])]
        for number, (epoch, start) in enumerate(starts):
            end = starts[number + 1][1] if number + 1 < len(starts) else row["log_end"]
            if end > start:
                colour = _EPOCH_COLOURS[epoch % len(_EPOCH_COLOURS)]
                bars.append(
                    f"<rect x='{x(start):.1f}' y='{y}' width='{max(1.0, x(end) - x(start)):.1f}' height='14' rx='2' fill='{colour}'>"
                    f"<title>epoch {epoch}: {start}..{end - 1}</title></rect>"
                )
                if x(end) - x(start) > 60:
                    bars.append(f"<text class='epoch' x='{x(start) + 5:.1f}' y='{y + 11}'>epoch {epoch}</text>")
        if row["high_watermark"] is not None:
            mark = x(row["high_watermark"])
            bars.append(f"<path d='M{mark:.1f} {y - 3} v20' stroke='currentColor' stroke-width='2'><title>high watermark</title></path>")
    bottom = 22 + len(rows) * 22
    frame = ""
    if partition["fence_to"] > partition["fence_from"]:
        begin, end = x(partition["fence_from"]), x(partition["fence_to"])
        frame = f"<rect class='fence' x='{begin:.1f}' y='16' width='{end - begin:.1f}' height='{bottom - 18}' rx='4'><title>compared</title></rect>"
    needle = ""
    if finding["offset"] >= 0:
        at = x(finding["offset"])
        needle = f"<path d='M{at:.1f} 12 V{bottom}' class='needle'/><text x='{at:.1f}' y='10' text-anchor='middle'>{finding['offset']:,}</text>"
    axis = f"<text x='{left}' y='{bottom + 14}'>{low:,}</text><text x='{left + width}' y='{bottom + 14}' text-anchor='end'>{high:,}</text>"
    return f"<svg class='ribbon' viewBox='0 0 {left + width + 10} {bottom + 20}'>{frame}{''.join(bars)}{needle}{axis}</svg>"


def _sides(sides: list[dict[str, Any]] | None) -> str:
    if not sides:
        return ""
    names = ("broker", "base_offset", "last_offset", "epoch", "records", "bytes", "crc", "crc_valid", "producer_id", "base_sequence", "position")
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
    rows = ""
    for side in sides:
        cells = []
        for name in names:
            value = side.get(name)
            text = "" if value is None else f"{value:#010x}" if name == "crc" else str(value)
            odd = len({str(other.get(name)) for other in sides}) > 1 and name not in {"broker", "position"}
            cells.append(f"<td{' class=odd' if odd else ''}>{escape(text)}</td>")
        rows += f"<tr>{''.join(cells)}</tr>"
    return f"<div class='wide'><table class='sides'><tr>{head}</tr>{rows}</table></div>"


def _hex(dumps: list[dict[str, Any]] | None) -> str:
    """The bytes around the first difference, side by side."""
    if not dumps:
        return ""
    columns = []
    for dump in dumps:
        data, others = bytes.fromhex(dump["bytes"]), [bytes.fromhex(other["bytes"]) for other in dumps if other is not dump]
        lines = []
        for start in range(0, len(data), 16):
            cells, text = [], []
            for index in range(start, min(start + 16, len(data))):
                odd = any(index >= len(other) or other[index] != data[index] for other in others)
                shown = chr(data[index]) if 32 <= data[index] < 127 else "·"
                cells.append(f"<b>{data[index]:02x}</b>" if odd else f"{data[index]:02x}")
                text.append(f"<b>{escape(shown)}</b>" if odd else escape(shown))
            lines.append(f"{dump['start'] + start:6d}  {' '.join(cells)}{'   ' * (16 - len(cells))}  {''.join(text)}")
        columns.append(f"<div><h4>broker {escape(dump['broker'])} <span class='dim'>byte of the batch</span></h4><pre>{chr(10).join(lines)}</pre></div>")
    return f"<div class='hex'>{''.join(columns)}</div>"


def _fence(report: dict[str, Any]) -> str:
    fence = report["fence"]
    rows = "".join(
        f"<tr><td>{escape(one['broker'])}</td><td class='mono'>{escape(one['path'])}</td>"
        f"<td>{ {True: 'stopped cleanly', False: 'running or crashed', None: 'unknown'}[one['clean_shutdown']] }</td></tr>"
        for one in report["cluster"]["log_directories"]
    )
    return (
        f"<section><h2>What was compared</h2><p>Instant: <b>{escape(fence['instant'])}</b>. {escape(fence['rule'])}.</p>"
        f"<table><tr><th>broker</th><th>source</th><th>state</th></tr>{rows}</table></section>"
    )


def _checks(report: dict[str, Any]) -> str:
    counts: dict[str, int] = {}
    for row in report["finding_counts"]:
        counts[row["check"]] = counts.get(row["check"], 0) + row["count"]
    rows = "".join(
        f"<tr><td><code>{check['id']}</code></td><td class='n'>{counts.get(check['id'], 0):,}</td><td>{escape(check['meaning'])}</td></tr>"
        for check in report["checks"]
    )
    title = f"<summary>All {len(report['checks'])} checks</summary>"
    return f"<section><details>{title}<table><tr><th>check</th><th class='n'>findings</th><th>meaning</th></tr>{rows}</table></details></section>"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


_CSS = """
:root{--bg:#f7f7f4;--card:#fff;--ink:#1c2330;--dim:#6a7280;--line:#e3e3dc;--hit:#d8412f}
@media(prefers-color-scheme:dark){:root{--bg:#14171d;--card:#1c2129;--ink:#e8eaf0;--dim:#939cab;--line:#2c333e;--hit:#ff7a66}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1100px;padding:28px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
header{display:flex;gap:24px;align-items:center;padding:26px 30px;border-radius:16px;color:#fff}
header.pass{background:linear-gradient(120deg,#1f7a53,#2e9e6b)}header.fail{background:linear-gradient(120deg,#7a0c2e,#d8412f)}
header.incomplete{background:linear-gradient(120deg,#7d6420,#c99a2e)}header .dim{color:#ffffffc0}
h1{margin:0;font-size:34px;letter-spacing:.04em}header p{margin:4px 0}h2{margin:0 0 12px;font-size:20px}h3{margin:0 0 6px;font-size:16px}
h4{margin:8px 0 2px;font-size:13px}section{margin-top:30px}.dim{color:var(--dim);font-size:13px;font-weight:400}.mono,pre,code{
font-family:ui-monospace,"DejaVu Sans Mono",Menlo,monospace;font-size:12.5px}code{background:var(--line);padding:1px 6px;border-radius:5px}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:10px}.numbers div{background:var(--card);border:1px solid
var(--line);border-radius:12px;padding:12px 14px}.numbers b{display:block;font-size:20px}.numbers span{color:var(--dim);font-size:12.5px}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line);border-radius:12px;overflow:hidden}
th,td{text-align:left;padding:7px 12px;border-bottom:1px solid var(--line);vertical-align:top}th{font-size:12.5px;color:var(--dim);font-weight:600}
tr:last-child td{border-bottom:0}.n{text-align:right;font-variant-numeric:tabular-nums}td.odd{color:var(--hit);font-weight:600}
.chip{display:inline-block;padding:1px 9px;border-radius:99px;font-size:12px;font-weight:600;color:#fff;background:#8a93a1;margin-right:4px}
.chip.match{background:#2e9e6b}.chip.lagging{background:#c99a2e}.chip.truncation_pending{background:#8f7bd6}.chip.single{background:#7aa7c7}
.chip.divergent,.chip.error{background:#d8412f}.chip.corrupt{background:#a3461f}.chip.lost{background:#7a0c2e}.chip.missing{background:#e8703a}
.chip.warning{background:#c99a2e}.legend span{margin-right:16px;font-size:13px;color:var(--dim)}.legend i{display:inline-block;width:12px;
height:12px;border-radius:3px;margin-right:5px;vertical-align:-1px}.maps{display:flex;flex-wrap:wrap;gap:14px}.topic{background:var(--card);
border:1px solid var(--line);border-radius:12px;padding:12px 16px}.topic h3{font-size:13px}svg text{font-size:11px;fill:var(--dim)}
svg.map{display:block;margin:4px 0}article{background:var(--card);border:1px solid var(--line);border-left:5px solid #8a93a1;border-radius:12px;
padding:14px 18px;margin-bottom:14px}article.error{border-left-color:#d8412f}article.warning{border-left-color:#c99a2e}article p{margin:4px 0}
article a{float:right;color:var(--dim);text-decoration:none;font-size:13px}.ribbon{width:100%;margin-top:10px;color:var(--ink)}
.fence{fill:none;stroke:#2e9e6b;stroke-width:1.5;stroke-dasharray:5 4}.needle{stroke:var(--hit);stroke-width:2}.hex{display:flex;flex-wrap:wrap;
gap:18px;margin-top:8px}svg text.epoch{fill:#fff;font-size:10px}.hex pre{font-size:10.5px}pre{margin:0;padding:10px 12px;background:var(--bg);border-radius:8px;overflow-x:auto}pre b{color:var(--hit)}
.sides{margin-top:10px;font-size:13px}.wide{overflow-x:auto}.quiet{color:#2e9e6b;font-weight:600}summary{cursor:pointer;font-weight:600;margin-bottom:8px}
@media print{body{max-width:none}article{break-inside:avoid}}
""".strip()
