#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fourfold {

// A report is plain data, rendered as one HTML file that needs nothing else: no scripts, no fonts,
// pictures as SVG inside, readable on light and dark screens and on paper. All texts are plain:
// they are escaped.

struct ReportSeries {
  std::string name{};
  std::vector<double> x{};
  std::vector<double> y{};  ///< As long as x; what is not finite leaves a gap.
  bool faint = false;   ///< Drawn thin and pale, behind the others (a noisy curve under its mean).
  bool points = false;  ///< Marks each point, for curves of few points.
};

/// A vertical line: something happened at x.
struct ReportMark {
  double x = 0;
  std::string label{};
};

/// A dotted horizontal line: a level to compare with.
struct ReportLevel {
  double y = 0;
  std::string label{};
};

struct ReportChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};
  std::vector<ReportSeries> series{};
  std::vector<ReportMark> marks{};
  std::vector<ReportLevel> levels{};
  bool log_y = false;      ///< Values of 0 and less leave gaps.
  bool from_zero = false;  ///< The y axis begins at 0.
};

/// A table; without a header the first column is set as names (a key/value list).
struct ReportTable {
  std::string title{};
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};
};

/// The 4D grid: an x by y board of ranks for each z and data, x down and y to the right.
struct ReportGrid {
  std::string title{};
  std::int64_t x = 1, y = 1, z = 1, data = 1;
  /// Rank of (x, y, z, data) at ((data·Z + z)·X + x)·Y + y; empty: numbered in that order.
  std::vector<std::int64_t> ranks{};
};

/// What some threads did in a stretch of time.
struct ReportTimeline {
  struct Span {
    double begin = 0, end = 0;
    int colour = 0;  ///< Index in `kinds`.
    std::string label{};
  };
  struct Track {
    std::string name{};
    std::vector<Span> spans{};  ///< Later ones are drawn over earlier ones.
  };
  std::string title{};
  double begin = 0, end = 0;  ///< Seconds.
  std::vector<std::string> kinds{};
  std::vector<Track> tracks{};
};

/// Small heat maps side by side, all in one scale: rows of values over x, where 1 is even. Each may
/// have a curve above it, of values from 1 on. Large ones are drawn in part.
struct ReportHeatMap {
  struct Panel {
    std::string name{};
    std::string note{};                          ///< In its upper right corner.
    std::vector<double> x{};                     ///< Ascending.
    std::vector<std::vector<double>> columns{};  ///< For each x the values, from the top down.
    std::vector<double> curve{};                 ///< For each x; may be empty.
  };
  std::string title{};
  std::string x_label{};
  std::string value_label{};  ///< What the colours say.
  std::string curve_label{};
  std::vector<Panel> panels{};
};

struct ReportText {
  std::string text{};
  bool preformatted = false;
};

using ReportItem =
    std::variant<ReportChart, ReportTable, ReportGrid, ReportTimeline, ReportHeatMap, ReportText>;

struct ReportSection {
  std::string title{};
  std::string note{};  ///< A sentence under the title; may be empty.
  std::vector<ReportItem> items{};
};

struct Report {
  std::string title{};
  std::string subtitle{};
  std::vector<std::pair<std::string, std::string>> facts{};  ///< Headline name and value.
  std::vector<ReportSection> sections{};
};

std::string render_report(const Report& report);
/// Atomic. Throws Error.
void write_report(const std::string& path, const Report& report);

/// The pictures alone, as <svg> elements that take their colours from the page's style; where a
/// heat map is drawn in part, a paragraph says so.
std::string render_chart(const ReportChart& chart);
std::string render_grid(const ReportGrid& grid);
std::string render_timeline(const ReportTimeline& timeline);
std::string render_heat_map(const ReportHeatMap& map);

/// Text for HTML: escaped, and made UTF-8 where it is not.
std::string html_escape(std::string_view text);

}  // namespace fourfold
