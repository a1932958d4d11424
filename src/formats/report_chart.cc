#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/chart_axis.h"
#include "formats/report_html.h"

namespace fourfold {
namespace {

// Sizes in SVG units, which are CSS pixels at full width.
constexpr double kWidth = 760, kHeight = 340;
constexpr double kLeft = 64, kRight = 20, kBottom = 52, kTop = 16, kLegendRow = 22;
constexpr double kCharacter = 6.8;  ///< Mean width of a character of the labels.
constexpr int kColours = 6;
/// More points than this are thinned out: a picture cannot show them.
constexpr std::size_t kMaxPoints = 1200;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

class ChartPainter {
 public:
  explicit ChartPainter(const ReportChart& chart) : chart_(chart) {}

  std::string paint() {
    find_axes();
    out_ = fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                       kWidth, kHeight,
                       html_escape(chart_.title.empty() ? chart_.y_label : chart_.title));
    paint_legend();
    paint_axes();
    if (empty_) {
      text((kLeft + kWidth - kRight) / 2, kHeight / 2, "middle", "label", "no data yet");
    }
    paint_levels();
    for (const bool faint : {true, false}) {
      for (std::size_t i = 0; i < chart_.series.size(); ++i) {
        if (chart_.series[i].faint == faint) paint_series(i);
      }
    }
    paint_marks();
    return out_ + "</svg>\n";
  }

 private:
  bool shown(double x, double y) const {
    return std::isfinite(x) && std::isfinite(y) && (!chart_.log_y || y > 0);
  }

  void find_axes() {
    Range x, y;
    for (const auto& series : chart_.series) {
      for (std::size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
        if (!shown(series.x[i], series.y[i])) continue;
        x.cover(series.x[i]);
        y.cover(series.y[i]);
      }
    }
    empty_ = x.empty();
    if (empty_) {
      x = {0, 1};
      y = {chart_.log_y ? 0.1 : 0, 1};
    }
    for (const auto& level : chart_.levels) {
      if (shown(0, level.y)) y.cover(level.y);
    }
    if (chart_.from_zero && !chart_.log_y) y.cover(0);
    x_axis_ = make_axis(x.low, x.high, 8, /*logarithmic=*/false, /*tight=*/true);
    y_axis_ = make_axis(y.low, y.high, 6, chart_.log_y, /*tight=*/false);
  }

  double x_at(double value) const {
    return kLeft + x_axis_.position(value) * (kWidth - kLeft - kRight);
  }
  double y_at(double value) const {
    return kHeight - kBottom - y_axis_.position(value) * (kHeight - kBottom - top_);
  }

  void text(double x, double y, const char* anchor, const char* style, std::string_view content,
            const char* more = "") {
    out_ +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\"{}>{}</text>",
                    x, y, anchor, style, more, html_escape(content));
  }

  void line(double x1, double y1, double x2, double y2, const char* style) {
    out_ +=
        fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                    x1, y1, x2, y2, style);
  }

  void paint_legend() {
    top_ = kTop;
    if (chart_.series.size() < 2) return;
    double x = kLeft, y = kTop + 4;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      const auto& series = chart_.series[i];
      const double width = 34 + kCharacter * static_cast<double>(series.name.size());
      if (x > kLeft && x + width > kWidth - kRight) {
        x = kLeft;
        y += kLegendRow;
      }
      out_ += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
          "class=\"curve c{}{}\"/>",
          x, y - 4, x + 18, y - 4, i % kColours, series.faint ? " faint" : "");
      text(x + 24, y, "start", "label", series.name);
      x += width;
    }
    top_ = y + 14;
  }

  void paint_axes() {
    for (std::size_t i = 0; i < y_axis_.ticks.size(); ++i) {
      const double y = y_at(y_axis_.ticks[i]);
      line(kLeft, y, kWidth - kRight, y, "rule");
      text(kLeft - 8, y + 4, "end", "tick", y_axis_.labels[i]);
    }
    const double base = kHeight - kBottom;
    line(kLeft, base, kWidth - kRight, base, "axis");
    for (std::size_t i = 0; i < x_axis_.ticks.size(); ++i) {
      const double x = x_at(x_axis_.ticks[i]);
      line(x, base, x, base + 5, "axis");
      text(x, base + 19, "middle", "tick", x_axis_.labels[i]);
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "label", chart_.x_label);
    const double middle = (top_ + base) / 2;
    text(14, middle, "middle", "label", chart_.y_label,
         fmt::format(" transform=\"rotate(-90 14 {:.1f})\"", middle).c_str());
  }

  void paint_levels() {
    for (const auto& level : chart_.levels) {
      if (!shown(0, level.y)) continue;
      const double y = y_at(level.y);
      line(kLeft, y, kWidth - kRight, y, "level");
      text(kWidth - kRight - 4, y - 5, "end", "tick halo", level.label);
    }
  }

  /// Marks stand on top; labels that would run into the one before go a line lower.
  void paint_marks() {
    std::vector<ReportMark> marks = chart_.marks;
    std::ranges::sort(marks, {}, &ReportMark::x);
    std::erase_if(marks, [this](const ReportMark& mark) {
      return !(mark.x >= x_axis_.low && mark.x <= x_axis_.high);
    });
    for (const auto& mark : marks) {
      line(x_at(mark.x), top_, x_at(mark.x), kHeight - kBottom, "mark");
    }
    double free_from[3] = {0, 0, 0};
    for (const auto& mark : marks) {
      const double x = x_at(mark.x);
      const double width = 8 + kCharacter * static_cast<double>(mark.label.size());
      const bool left = x + width > kWidth - kRight;
      for (int row = 0; row < 3; ++row) {
        if ((left ? x - width : x) < free_from[row]) continue;
        text(left ? x - 4 : x + 4, top_ + 11 + 14 * row, left ? "end" : "start", "tick marked",
             mark.label);
        free_from[row] = left ? x : x + width;
        break;
      }
    }
  }

  /// Keeps the lowest and the highest point of each column of the picture.
  std::vector<std::size_t> thin_out(const ReportSeries& series, std::size_t count) const {
    std::vector<std::size_t> kept;
    if (count <= kMaxPoints) {
      for (std::size_t i = 0; i < count; ++i) kept.push_back(i);
      return kept;
    }
    const std::size_t columns = kMaxPoints / 2;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t begin = count * c / columns, end = count * (c + 1) / columns;
      std::size_t low = begin, high = begin;
      for (std::size_t i = begin; i < end; ++i) {
        if (!shown(series.x[i], series.y[i])) continue;
        if (!(series.y[low] <= series.y[i])) low = i;
        if (!(series.y[high] >= series.y[i])) high = i;
      }
      kept.push_back(std::min(low, high));
      if (low != high) kept.push_back(std::max(low, high));
    }
    return kept;
  }

  void paint_series(std::size_t index) {
    const auto& series = chart_.series[index];
    std::string path, dots;
    bool gap = true;
    for (const std::size_t i : thin_out(series, std::min(series.x.size(), series.y.size()))) {
      if (!shown(series.x[i], series.y[i])) {
        gap = true;
        continue;
      }
      const double x = x_at(series.x[i]), y = y_at(series.y[i]);
      path += fmt::format("{}{:.1f} {:.1f}", gap ? "M" : "L", x, y);
      gap = false;
      if (series.points || series.x.size() == 1) {
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" class=\"dot c{}\"/>", x, y,
                            index % kColours);
      }
    }
    if (path.empty()) return;
    out_ +=
        fmt::format("<path d=\"{}\" class=\"curve c{}{}\"><title>{}</title></path>{}", path,
                    index % kColours, series.faint ? " faint" : "", html_escape(series.name), dots);
  }

  const ReportChart& chart_;
  ChartAxis x_axis_, y_axis_;
  double top_ = kTop;
  bool empty_ = false;
  std::string out_;
};

}  // namespace

std::string render_chart(const ReportChart& chart) { return ChartPainter(chart).paint(); }

}  // namespace fourfold
