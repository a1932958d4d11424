"""The curves of moe_against_dense.py as an SVG file, for light and dark pages."""

import math

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 24, 52
STYLE = """
text{fill:#343a40}.grid{stroke:#dee2e6}.dense{stroke:#1864ab;fill:#1864ab}
.moe{stroke:#d9480f;fill:#d9480f}.page{fill:#fff}
path{fill:none!important;stroke-width:2}text.dense,text.moe{stroke:none}
@media (prefers-color-scheme:dark){text{fill:#ced4da}.grid{stroke:#343a40}
.dense{stroke:#74c0fc;fill:#74c0fc}.moe{stroke:#ffa94d;fill:#ffa94d}.page{fill:#0d1117}}
"""


def ticks(low, high, about=6):
    """Round numbers within low and high."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def write_svg(path, names, points):
    """points: [(tokens, {side: loss})] in order, two at least; names: {side: what it is called}."""
    tokens = [at for at, _ in points]
    losses = sorted(loss for _, by_side in points for loss in by_side.values())
    # The first evaluations are far above all others; the curve may leave the picture there.
    low, high = losses[0], losses[int(0.95 * (len(losses) - 1))]
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low) + 1e-6
    first, last = tokens[0], tokens[-1]

    def x(at):
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / (last - first)

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Loss on held-out text by tokens</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" '
        f'height="{floor - TOP}"/></clipPath>',
    ]
    for loss in ticks(low, high):
        lines += [
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(loss):.1f}" y2="{y(loss):.1f}"/>',
            f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.4g}</text>',
        ]
    for at in ticks(first / 1e6, last / 1e6):
        lines += [
            f'<line class="grid" x1="{x(1e6 * at):.1f}" x2="{x(1e6 * at):.1f}" y1="{TOP}" '
            f'y2="{floor}"/>',
            f'<text x="{x(1e6 * at):.1f}" y="{floor + 20}" text-anchor="middle">{at:.4g}</text>',
        ]
    middle = (LEFT + right) / 2
    lines += [
        f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">million tokens</text>',
        f'<text x="18" y="{(TOP + floor) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 18 {(TOP + floor) / 2})">held-out loss, nats a token</text>',
    ]
    end = points[-1][1]
    # Labels beside the ends of the curves, apart from each other.
    order = sorted(names, key=lambda side: -end[side])
    label_y, least = -math.inf, 18
    for side in order:
        curve = "L".join(f"{x(at):.1f} {y(by_side[side]):.1f}" for at, by_side in points)
        label_y = max(y(end[side]) + 4, label_y + least)
        lines += [
            f'<path class="{side}" clip-path="url(#inside)" d="M{curve}"/>',
            f'<text class="{side}" x="{right + 8}" y="{label_y:.1f}">'
            f"{names[side]} {end[side]:.3f}</text>",
        ]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, "</svg>"]) + "\n")
