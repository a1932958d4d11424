#include <fmt/core.h>

#include <algorithm>

#include "formats/report_html.h"

namespace fourfold {
namespace {

constexpr double kMaxWidth = 760;
constexpr double kGap = 22, kFrame = 14, kLabel = 22;
constexpr int kColours = 6;
constexpr std::int64_t kWideRank = 999;  ///< Longer numbers are set smaller.
/// Larger grids are drawn in part: the picture is to be read.
constexpr std::int64_t kMaxSide = 8, kMaxBoards = 4, kMaxReplicas = 2;

/// "3 of 12", or "" where all are drawn.
std::string left_out(const char* axis, std::int64_t drawn, std::int64_t all) {
  return drawn == all ? "" : fmt::format("{} {} of {}; ", axis, drawn, all);
}

class GridPainter {
 public:
  explicit GridPainter(const ReportGrid& grid)
      : grid_(grid),
        rows_(std::min(grid.x, kMaxSide)),
        columns_(std::min(grid.y, kMaxSide)),
        boards_(std::min(grid.z, kMaxBoards)),
        replicas_(std::min(grid.data, kMaxReplicas)) {
    const auto side = static_cast<double>(std::max(rows_, columns_));
    cell_ = side <= 4 ? 44 : 32;
    board_width_ = static_cast<double>(columns_) * cell_;
    board_height_ = static_cast<double>(rows_) * cell_;
    const double usable = kMaxWidth - 2 * kFrame - kLabel;
    per_line_ = std::clamp<std::int64_t>(
        static_cast<std::int64_t>((usable + kGap) / (board_width_ + kGap)), 1, boards_);
  }

  std::string paint() {
    const std::int64_t lines = (boards_ + per_line_ - 1) / per_line_;
    const double line_height = board_height_ + kLabel + 8;
    const double frame_width =
        2 * kFrame + kLabel + static_cast<double>(per_line_) * (board_width_ + kGap) - kGap;
    const double frame_height = 2 * kFrame + kLabel - 8 + static_cast<double>(lines) * line_height;
    const std::int64_t across = std::clamp<std::int64_t>(
        static_cast<std::int64_t>((kMaxWidth + kGap) / (frame_width + kGap)), 1, replicas_);
    const std::int64_t down = (replicas_ + across - 1) / across;
    for (std::int64_t d = 0; d < replicas_; ++d) {
      const double left = static_cast<double>(d % across) * (frame_width + kGap);
      const double top = static_cast<double>(d / across) * (frame_height + kGap);
      paint_replica(d, left, top, frame_width, frame_height, line_height);
    }
    const double width = static_cast<double>(across) * (frame_width + kGap) - kGap;
    const double height = static_cast<double>(down) * (frame_height + kGap) - kGap;
    const std::string note = left_out("x", rows_, grid_.x) + left_out("y", columns_, grid_.y) +
                             left_out("z", boards_, grid_.z) +
                             left_out("data", replicas_, grid_.data);
    std::string svg = fmt::format(
        "<svg class=\"grid\" viewBox=\"-1 -1 {:.0f} {:.0f}\" style=\"max-width:{:.0f}px\" "
        "role=\"img\" aria-label=\"{} by {} by {} by {} ranks\">{}</svg>\n",
        width + 2, height + 2, width + 2, grid_.x, grid_.y, grid_.z, grid_.data, out_);
    if (!note.empty()) {
      svg += fmt::format("<p class=\"note\">Drawn: {}the rest goes on alike.</p>\n", note);
    }
    return svg;
  }

 private:
  std::int64_t rank(std::int64_t x, std::int64_t y, std::int64_t z, std::int64_t d) const {
    const std::int64_t index = ((d * grid_.z + z) * grid_.x + x) * grid_.y + y;
    return index < static_cast<std::int64_t>(grid_.ranks.size())
               ? grid_.ranks[static_cast<std::size_t>(index)]
               : index;
  }

  void text(double x, double y, const char* anchor, const char* style, const std::string& content) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>",
                        x, y, anchor, style, content);
  }

  void paint_replica(std::int64_t d, double left, double top, double width, double height,
                     double line_height) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\" "
        "class=\"frame\"/>",
        left, top, width, height);
    text(left + kFrame, top + kFrame + 6, "start", "label strong", fmt::format("data {}", d));
    for (std::int64_t z = 0; z < boards_; ++z) {
      const double x =
          left + kFrame + kLabel + static_cast<double>(z % per_line_) * (board_width_ + kGap);
      const double y =
          top + kFrame + 2 * kLabel - 6 + static_cast<double>(z / per_line_) * line_height;
      paint_board(z, d, x, y);
    }
  }

  void paint_board(std::int64_t z, std::int64_t d, double left, double top) {
    text(left + board_width_, top - 6, "end", "tick", fmt::format("z {}", z));
    if (columns_ > 1) text(left, top - 6, "start", "tick", "y \u2192");
    if (rows_ > 1 && z % per_line_ == 0)
      text(left - 6, top + cell_ / 2 + 4, "end", "tick", "x \u2193");
    for (std::int64_t x = 0; x < rows_; ++x) {
      for (std::int64_t y = 0; y < columns_; ++y) {
        const double at_x = left + static_cast<double>(y) * cell_;
        const double at_y = top + static_cast<double>(x) * cell_;
        const std::int64_t r = rank(x, y, z, d);
        out_ += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" "
            "class=\"cell c{}\"><title>rank {}: x {}, y {}, z {}, data {}</title></rect>",
            at_x + 1, at_y + 1, cell_ - 2, cell_ - 2, z % kColours, r, x, y, z, d);
        text(at_x + cell_ / 2, at_y + cell_ / 2 + 4, "middle",
             r > kWideRank ? "rank small" : "rank", std::to_string(r));
      }
    }
  }

  const ReportGrid& grid_;
  std::int64_t rows_, columns_, boards_, replicas_;
  std::int64_t per_line_ = 1;
  double cell_ = 0, board_width_ = 0, board_height_ = 0;
  std::string out_;
};

}  // namespace

std::string render_grid(const ReportGrid& grid) { return GridPainter(grid).paint(); }

}  // namespace fourfold
