#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "formats/chart_axis.h"
#include "formats/report_html.h"

namespace fourfold {
namespace {

constexpr double kWidth = 760, kLeft = 40, kRight = 8, kGap = 18;
constexpr double kLegend = 46, kHeader = 18, kCurve = 34, kSpace = 8, kBelow = 16, kAxis = 30;
constexpr double kCharacter = 6.8;  ///< Mean width of a character of the labels.
/// A picture cannot show more: of more panels the uneven ones are drawn, rows and columns beyond
/// are drawn together.
constexpr std::size_t kMaxPanels = 24, kMaxRows = 128;
constexpr double kColumnWidth = 3, kMapHeight = 192, kLeastRow = 2, kMostRow = 10;

/// Colours h1, h2, … lie between these values; h0 is for nothing at all.
constexpr std::array<double, 8> kBounds{0.25, 0.5, 0.75, 0.9, 1.1, 1.33, 2, 4};

int colour_of(double value) {
  if (!(value > 0)) return 0;
  return 1 + static_cast<int>(std::ranges::upper_bound(kBounds, value) - kBounds.begin());
}

/// Further from 1, whichever way.
bool less_even(double a, double b) {
  const auto distance = [](double v) { return std::abs(std::log(std::max(v, 1e-9))); };
  return distance(a) > distance(b);
}

class HeatMapPainter {
 public:
  explicit HeatMapPainter(const ReportHeatMap& map) : map_(map) {
    choose_panels();
    for (const auto* panel : panels_) {
      for (const auto& column : panel->columns) rows_ = std::max(rows_, column.size());
      for (const double y : panel->curve) {
        if (std::isfinite(y)) top_ = std::max(top_, y);
      }
    }
    drawn_rows_ = std::clamp<std::size_t>(rows_, 1, kMaxRows);
    across_ = panels_.size() <= 4 ? 2 : panels_.size() <= 9 ? 3 : 4;
    const auto across = static_cast<double>(across_);
    panel_width_ = (kWidth - kLeft - kRight - kGap * (across - 1)) / across;
    const auto rows = static_cast<double>(drawn_rows_);
    map_height_ = rows * std::clamp(std::floor(kMapHeight / rows), kLeastRow, kMostRow);
    panel_height_ = kHeader + kCurve + kSpace + map_height_ + kBelow;
  }

  std::string paint() {
    const std::size_t lines = (panels_.size() + across_ - 1) / across_;
    const double height = kLegend + static_cast<double>(lines) * panel_height_ + kAxis;
    out_ =
        fmt::format("<svg class=\"heat\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">",
                    kWidth, height, html_escape(map_.title));
    if (panels_.empty()) {
      text(kWidth / 2, kLegend + kAxis / 2, "middle", "label", "no data yet");
      return out_ + "</svg>\n";
    }
    paint_legend();
    for (std::size_t i = 0; i < panels_.size(); ++i) paint_panel(i);
    return out_ + "</svg>\n" + left_out();
  }

 private:
  using Panel = ReportHeatMap::Panel;

  static double highest(const Panel& panel) {
    return panel.curve.empty() ? 0 : *std::ranges::max_element(panel.curve);
  }

  void choose_panels() {
    for (const auto& panel : map_.panels) {
      if (!panel.x.empty()) panels_.push_back(&panel);
    }
    all_panels_ = panels_.size();
    if (all_panels_ <= kMaxPanels) return;
    std::vector<const Panel*> worst = panels_;
    std::ranges::stable_sort(worst, {}, [](const Panel* p) { return -highest(*p); });
    const double least = highest(*worst[kMaxPanels - 1]);
    std::erase_if(panels_, [&](const Panel* p) { return highest(*p) < least; });
    panels_.resize(kMaxPanels);  // Of those that are as uneven as the last, the first ones.
  }

  std::string left_out() const {
    std::string note;
    if (panels_.size() < all_panels_) {
      note = fmt::format("The {} of {} with the highest curves. ", panels_.size(), all_panels_);
    }
    if (drawn_rows_ < rows_) {
      note += fmt::format("{} rows stand for {}, each for the least even of its own. ", drawn_rows_,
                          rows_);
    }
    return note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>\n", html_escape(note));
  }

  void text(double x, double y, const char* anchor, const char* style, std::string_view content) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
                        x, y, anchor, style, html_escape(content));
  }

  void line(double x1, double y1, double x2, double y2, const char* style) {
    out_ +=
        fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                    x1, y1, x2, y2, style);
  }

  void swatch(double x, double width, int colour) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"6\" width=\"{:.1f}\" height=\"12\" class=\"span h{}\"/>", x, width,
        colour);
  }

  void paint_legend() {
    constexpr double kSwatch = 34;
    double x = kLeft;
    swatch(x, kSwatch, 0);
    text(x + kSwatch / 2, 31, "middle", "tick", "none");
    x += kSwatch + 10;
    for (std::size_t i = 0; i <= kBounds.size(); ++i) {
      swatch(x, kSwatch, static_cast<int>(i) + 1);
      x += kSwatch;
      if (i < kBounds.size()) text(x, 31, "middle", "tick", fmt::format("{}", kBounds[i]));
    }
    text(x + 10, 16, "start", "label", map_.value_label);
    if (map_.curve_label.empty()) return;
    x += 10 + kCharacter * static_cast<double>(map_.value_label.size()) + 14;
    line(x, 12, x + 18, 12, "curve thin c5");
    text(x + 24, 16, "start", "label", map_.curve_label);
  }

  void paint_panel(std::size_t index) {
    const Panel& panel = *panels_[index];
    const bool leftmost = index % across_ == 0, lowest = index + across_ >= panels_.size();
    const double left = kLeft + static_cast<double>(index % across_) * (panel_width_ + kGap);
    const double top = kLegend + static_cast<double>(index / across_) * panel_height_;
    const double curve = top + kHeader, map = curve + kCurve + kSpace;
    text(left, top + 11, "start", "strong", panel.name);
    text(left + panel_width_, top + 11, "end", "label", panel.note);
    // The columns of a panel reach from a step to the next: the first begins a step earlier.
    const double gap = panel.x.size() > 1 ? panel.x[1] - panel.x[0] : panel.x[0];
    const double low = std::max(0.0, panel.x.front() - gap), high = panel.x.back();
    const ChartAxis axis = make_axis(low, high, 3, /*logarithmic=*/false, /*tight=*/true);
    paint_curve(panel, axis, left, curve);
    paint_cells(panel, low, high, left, map);
    if (leftmost) {
      text(left - 6, curve + 9, "end", "tick small", fmt::format("{:.1f}", top_));
      text(left - 6, curve + kCurve, "end", "tick small", "1");
      text(left - 6, map + 8, "end", "tick small", "0");
      text(left - 6, map + map_height_, "end", "tick small", fmt::format("{}", rows_ - 1));
    }
    if (!lowest) return;
    constexpr double kEdge = 0.1;  // Of the width.
    const double base = map + map_height_;
    for (std::size_t i = 0; i < axis.ticks.size(); ++i) {
      const double x = left + axis.position(axis.ticks[i]) * panel_width_;
      line(x, base, x, base + 4, "axis");
      // At the edges it would run into the neighbour's.
      const double at = axis.position(axis.ticks[i]);
      const char* anchor = at < kEdge ? "start" : at > 1 - kEdge ? "end" : "middle";
      text(x, base + 17, anchor, "tick small", axis.labels[i]);
    }
    text(left + panel_width_ / 2, base + 32, "middle", "label small", map_.x_label);
  }

  /// The records of each column: those in it, or the next where it has none.
  std::vector<std::pair<std::size_t, std::size_t>> columns_of(const Panel& panel, double low,
                                                              double high) const {
    const auto most = static_cast<std::size_t>(panel_width_ / kColumnWidth);
    const std::size_t count = std::min(panel.x.size(), most);
    const double width = (high - low) / static_cast<double>(count);
    std::vector<std::pair<std::size_t, std::size_t>> columns;
    std::size_t begin = 0;
    for (std::size_t c = 1; c <= count; ++c) {
      const double right = c == count ? high : low + width * static_cast<double>(c);
      std::size_t end = begin;
      while (end < panel.x.size() && panel.x[end] <= right + width * 1e-6) ++end;
      columns.emplace_back(begin, std::max(end, std::min(begin + 1, panel.x.size())));
      begin = end;
    }
    return columns;
  }

  void paint_curve(const Panel& panel, const ChartAxis& axis, double left, double top) {
    if (panel.curve.empty()) return;
    const double base = top + kCurve;
    line(left, base, left + panel_width_, base, "rule");
    line(left, top, left + panel_width_, top, "rule");
    std::string path;
    for (const auto& [begin, end] : columns_of(panel, axis.low, axis.high)) {
      if (begin == end) continue;
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += panel.curve[i];
      const double mean = sum / static_cast<double>(end - begin);
      if (!std::isfinite(mean)) continue;
      const double x = left + axis.position(panel.x[end - 1]) * panel_width_;
      const double y = base - (std::max(mean, 1.0) - 1) / (top_ - 1) * kCurve;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    }
    out_ += fmt::format("<path d=\"{}\" class=\"curve thin c5\"><title>{}</title></path>", path,
                        html_escape(panel.name + ", " + map_.curve_label));
  }

  /// The colours of a column's rows.
  std::vector<int> colours_of(const Panel& panel, std::size_t begin, std::size_t end) const {
    std::vector<double> mean(rows_);
    for (std::size_t i = begin; i < end; ++i) {
      const auto& column = panel.columns[i];
      for (std::size_t r = 0; r < column.size(); ++r) mean[r] += column[r];
    }
    for (double& value : mean) value /= static_cast<double>(std::max<std::size_t>(end - begin, 1));
    std::vector<int> colours;
    for (std::size_t r = 0; r < drawn_rows_; ++r) {
      const std::size_t first = r * rows_ / drawn_rows_;
      const std::size_t last = std::max((r + 1) * rows_ / drawn_rows_, first + 1);
      double shown = mean[first];
      for (std::size_t i = first + 1; i < last; ++i) {
        if (less_even(mean[i], shown)) shown = mean[i];
      }
      colours.push_back(colour_of(shown));
    }
    return colours;
  }

  /// A path for each colour, in units of cells, with a stroke for each run of equal cells in a row.
  void paint_cells(const Panel& panel, double low, double high, double left, double top) {
    std::vector<std::vector<int>> cells;
    for (const auto& [begin, end] : columns_of(panel, low, high)) {
      cells.push_back(colours_of(panel, begin, end));
    }
    std::array<std::string, kBounds.size() + 2> paths;
    for (std::size_t r = 0; r < drawn_rows_; ++r) {
      for (std::size_t c = 0, end = 0; c < cells.size(); c = end) {
        const int colour = cells[c][r];
        while (end < cells.size() && cells[end][r] == colour) ++end;
        paths[static_cast<std::size_t>(colour)] += fmt::format("M{} {}h{}", c, r, end - c);
      }
    }
    out_ += fmt::format(
        "<g transform=\"translate({:.1f} {:.1f}) scale({:.4f} {:.4f}) translate(0 .5)\">", left,
        top, panel_width_ / static_cast<double>(cells.size()),
        map_height_ / static_cast<double>(drawn_rows_));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (!paths[i].empty())
        out_ += fmt::format("<path d=\"{}\" class=\"cells h{}\"/>", paths[i], i);
    }
    out_ += "</g>";
  }

  const ReportHeatMap& map_;
  std::vector<const Panel*> panels_;
  std::size_t all_panels_ = 0, rows_ = 1, drawn_rows_ = 1, across_ = 1;
  double panel_width_ = 0, map_height_ = 0, panel_height_ = 0;
  double top_ = 1.5;  ///< Of the curves, which begin at 1.
  std::string out_;
};

}  // namespace

std::string render_heat_map(const ReportHeatMap& map) { return HeatMapPainter(map).paint(); }

}  // namespace fourfold
