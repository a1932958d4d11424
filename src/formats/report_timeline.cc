#include <fmt/core.h>

#include <algorithm>

#include "formats/chart_axis.h"
#include "formats/report_html.h"

namespace fourfold {
namespace {

constexpr double kWidth = 760, kLeft = 118, kRight = 12;
constexpr double kLegend = 26, kRow = 24, kBar = 16, kBottom = 46;
constexpr double kCharacter = 6.8;  ///< Mean width of a character of the labels.
constexpr int kColours = 6;
constexpr double kMilliseconds = 1e3;
/// Spans closer than this are drawn as one: a picture cannot show them apart.
constexpr double kNarrow = 0.25;

class TimelinePainter {
 public:
  explicit TimelinePainter(const ReportTimeline& timeline)
      : timeline_(timeline),
        axis_(make_axis(0, std::max(timeline.end - timeline.begin, 1e-9) * kMilliseconds, 8,
                        /*logarithmic=*/false, /*tight=*/true)) {}

  std::string paint() {
    const double base = kLegend + kRow * static_cast<double>(timeline_.tracks.size());
    out_ = fmt::format(
        "<svg class=\"timeline\" viewBox=\"0 0 {} {}\" role=\"img\" "
        "aria-label=\"{}\">",
        kWidth, base + kBottom, html_escape(timeline_.title));
    paint_legend();
    for (std::size_t i = 0; i < timeline_.tracks.size(); ++i) paint_track(i);
    paint_axis(base);
    return out_ + "</svg>\n";
  }

 private:
  double x_at(double milliseconds) const {
    return kLeft + axis_.position(milliseconds) * (kWidth - kLeft - kRight);
  }
  double x_of(double seconds) const {
    return x_at((std::clamp(seconds, timeline_.begin, timeline_.end) - timeline_.begin) *
                kMilliseconds);
  }

  void text(double x, double y, const char* anchor, const char* style, std::string_view content) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
                        x, y, anchor, style, html_escape(content));
  }

  void rectangle(double x, double y, double width, const std::string& style,
                 const std::string& label) {
    out_ +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" class=\"{}\">",
                    x, y, width, kBar, style);
    if (!label.empty()) out_ += "<title>" + html_escape(label) + "</title>";
    out_ += "</rect>";
  }

  void paint_legend() {
    double x = kLeft;
    for (std::size_t i = 0; i < timeline_.kinds.size(); ++i) {
      out_ +=
          fmt::format("<rect x=\"{:.1f}\" y=\"4\" width=\"12\" height=\"12\" class=\"span c{}\"/>",
                      x, i % kColours);
      text(x + 17, 14, "start", "label", timeline_.kinds[i]);
      x += 34 + kCharacter * static_cast<double>(timeline_.kinds[i].size());
    }
  }

  void paint_track(std::size_t index) {
    const ReportTimeline::Track& track = timeline_.tracks[index];
    const double y = kLegend + kRow * static_cast<double>(index);
    text(kLeft - 8, y + 12, "end", "label", track.name);
    rectangle(kLeft, y, kWidth - kLeft - kRight, "band", "");
    double begin = 0, end = -1;  // Of what is still to be drawn, in the picture.
    const ReportTimeline::Span* first = nullptr;
    auto draw = [&] {
      if (!first) return;
      rectangle(begin, y, std::max(end - begin, kNarrow),
                fmt::format("span c{}", first->colour % kColours), first->label);
    };
    for (const ReportTimeline::Span& span : track.spans) {
      if (span.end < timeline_.begin || span.begin > timeline_.end) continue;
      const double left = x_of(span.begin), right = x_of(span.end);
      const bool narrow = right - left < kNarrow && first && first->colour == span.colour;
      if (narrow && left >= begin && left - end < kNarrow) {
        end = std::max(end, right);
        continue;
      }
      draw();
      first = &span;
      begin = left;
      end = right;
    }
    draw();
  }

  void paint_axis(double base) {
    out_ += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" class=\"axis\"/>",
                        kLeft, base, kWidth - kRight, base);
    for (std::size_t i = 0; i < axis_.ticks.size(); ++i) {
      const double x = x_at(axis_.ticks[i]);
      out_ += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"axis\"/>", x, base,
          x, base + 5);
      text(x, base + 18, "middle", "tick", axis_.labels[i]);
    }
    text((kLeft + kWidth - kRight) / 2, base + 38, "middle", "label", "milliseconds");
  }

  const ReportTimeline& timeline_;
  const ChartAxis axis_;
  std::string out_;
};

}  // namespace

std::string render_timeline(const ReportTimeline& timeline) {
  return TimelinePainter(timeline).paint();
}

}  // namespace fourfold
