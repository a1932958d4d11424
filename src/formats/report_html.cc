#include "formats/report_html.h"

#include <fmt/core.h>

#include "formats/file_io.h"
#include "formats/utf8.h"

namespace fourfold {
namespace {

constexpr std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --ink: #1c2330; --soft: #5a6475; --rule: #e3e6ec;
  --axis: #9aa3b2; --mark: #c2410c;
  --c0: #2f62d0; --c1: #d9650f; --c2: #11877a; --c3: #8a4fc4; --c4: #c52f5b; --c5: #6b7280;
  --h0: #131f3d; --h1: #2f62d0; --h2: #7c9fe6; --h3: #b3c8f1; --h4: #d9e3f6; --h5: #eceef1;
  --h6: #f8e3d0; --h7: #f4c092; --h8: #e88b41; --h9: #b8480a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151c; --card: #1a202b; --ink: #e6e9ef; --soft: #9aa5b8; --rule: #2b3342;
    --axis: #5d6880; --mark: #fb923c;
    --c0: #7ea6ff; --c1: #ffab5e; --c2: #4fd1b5; --c3: #bd98f7; --c4: #fb7d9f; --c5: #aab2c0;
    --h0: #e6eeff; --h1: #8db2ff; --h2: #5585e0; --h3: #3b5da3; --h4: #31446b; --h5: #2b3342;
    --h6: #4a3b33; --h7: #7d5433; --h8: #c2762f; --h9: #ffb25c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 880px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 20px 0 6px; }
.subtitle { color: var(--soft); margin: 6px 0 0; }
.note { color: var(--soft); margin: 0 0 8px; font-size: 14px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 22px 0 0; padding: 0; }
.facts div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: 12px 14px; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 2px 0 0; font-size: 20px; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 20px 22px 18px; margin-top: 20px; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; margin: 6px 0 4px; }
svg text { fill: var(--ink); font-size: 12px; }
svg .tick, svg .label { fill: var(--soft); }
svg .strong { fill: var(--ink); font-weight: 600; }
svg .marked { fill: var(--mark); }
svg .marked, svg .halo { paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
svg .rule { stroke: var(--rule); }
svg .axis { stroke: var(--axis); }
svg .mark { stroke: var(--mark); stroke-dasharray: 4 3; }
svg .level { stroke: var(--soft); stroke-dasharray: 2 4; }
svg .curve { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
svg .faint { stroke-width: 1; opacity: 0.4; }
svg .dot { fill: var(--c); }
svg .frame { fill: none; stroke: var(--rule); stroke-width: 1.5; }
svg .cell { fill: var(--c); fill-opacity: 0.18; stroke: var(--c); stroke-opacity: 0.7; }
svg .span { fill: var(--c); }
svg .band { fill: var(--rule); fill-opacity: 0.5; }
svg .rank { font-size: 13px; font-variant-numeric: tabular-nums; }
svg .small { font-size: 10px; }
svg .thin { stroke-width: 1.5; }
svg .cells { stroke: var(--c); shape-rendering: crispEdges; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); }
.c3 { --c: var(--c3); } .c4 { --c: var(--c4); } .c5 { --c: var(--c5); }
.h0 { --c: var(--h0); } .h1 { --c: var(--h1); } .h2 { --c: var(--h2); } .h3 { --c: var(--h3); }
.h4 { --c: var(--h4); } .h5 { --c: var(--h5); } .h6 { --c: var(--h6); } .h7 { --c: var(--h7); }
.h8 { --c: var(--h8); } .h9 { --c: var(--h9); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 6px 0 4px;
  min-width: 50%; }
th, td { text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; font-size: 13px; }
tbody th { color: var(--soft); font-weight: 400; white-space: nowrap; }
pre { background: var(--page); border-radius: 8px; padding: 12px 14px; overflow-x: auto;
  font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
@media print { body { background: none; } section, .facts div { border-color: #ccc; } }
)css";

std::string heading(const std::string& title) {
  return title.empty() ? "" : fmt::format("<h3>{}</h3>\n", html_escape(title));
}

std::string render(const ReportChart& chart) { return heading(chart.title) + render_chart(chart); }

std::string render(const ReportGrid& grid) { return heading(grid.title) + render_grid(grid); }

std::string render(const ReportTimeline& timeline) {
  return heading(timeline.title) + render_timeline(timeline);
}

std::string render(const ReportHeatMap& map) { return heading(map.title) + render_heat_map(map); }

std::string render(const ReportText& text) {
  return text.preformatted ? fmt::format("<pre>{}</pre>\n", html_escape(text.text))
                           : fmt::format("<p>{}</p>\n", html_escape(text.text));
}

std::string render(const ReportTable& table) {
  std::string out = heading(table.title) + "<div class=\"wide\"><table>\n";
  if (!table.header.empty()) {
    out += "<thead><tr>";
    for (const auto& cell : table.header) out += fmt::format("<th>{}</th>", html_escape(cell));
    out += "</tr></thead>\n";
  }
  out += "<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const char* tag = i == 0 && table.header.empty() ? "th" : "td";
      out += fmt::format("<{0}>{1}</{0}>", tag, html_escape(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : to_valid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // Control characters are not allowed in HTML.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string render_report(const Report& report) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      html_escape(report.title), kStyle);
  if (!report.subtitle.empty()) {
    out += fmt::format("<p class=\"subtitle\">{}</p>\n", html_escape(report.subtitle));
  }
  if (!report.facts.empty()) {
    out += "<dl class=\"facts\">\n";
    for (const auto& [name, value] : report.facts) {
      out +=
          fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_escape(name), html_escape(value));
    }
    out += "</dl>\n";
  }
  for (const auto& section : report.sections) {
    out += fmt::format("<section>\n<h2>{}</h2>\n", html_escape(section.title));
    if (!section.note.empty()) {
      out += fmt::format("<p class=\"note\">{}</p>\n", html_escape(section.note));
    }
    for (const auto& item : section.items) {
      out += std::visit([](const auto& one) { return render(one); }, item);
    }
    out += "</section>\n";
  }
  return out + "</main>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const Report& report) {
  write_text_file(path, render_report(report));
}

}  // namespace fourfold
