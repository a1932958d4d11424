#include "train/experts_section.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fourfold {
namespace {

using BySteps = std::map<double, RouterRecord>;

double mean_tokens(const RouterRecord& r) {
  const auto sum = std::accumulate(r.tokens.begin(), r.tokens.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(r.tokens.size());
}

ReportHeatMap::Panel panel_of(std::int64_t layer, const BySteps& by_step) {
  ReportHeatMap::Panel panel;
  panel.name = fmt::format("layer {}", layer);
  if (by_step.empty()) return panel;
  panel.note = fmt::format("max/mean {:.2f}", by_step.rbegin()->second.max_over_mean);
  for (const auto& [step, r] : by_step) {
    panel.x.push_back(step);
    panel.curve.push_back(r.max_over_mean);
    const double mean = std::max(mean_tokens(r), 1e-9);
    auto& column = panel.columns.emplace_back();
    for (const std::int64_t tokens : r.tokens) {
      column.push_back(static_cast<double>(tokens) / mean);
    }
  }
  return panel;
}

ReportHeatMap load_map(const RunCurves& curves) {
  ReportHeatMap map;
  map.title = "Load of each expert, from the first at the top to the last";
  map.x_label = "step";
  map.value_label = "tokens, 1 = even load";
  map.curve_label = "max/mean";
  for (const auto& [layer, by_step] : curves.routers) {
    map.panels.push_back(panel_of(layer, by_step));
  }
  return map;
}

/// Over the layers: their mean, and the worst, which is the largest or (`least`) the smallest.
ReportChart layers_chart(const RunCurves& curves, double RouterRecord::* member, bool least) {
  struct Point {
    double sum = 0, worst = 0;
    int count = 0;
  };
  std::map<double, Point> points;
  for (const auto& [layer, by_step] : curves.routers) {
    for (const auto& [step, record] : by_step) {
      const double value = record.*member;
      Point& p = points[step];
      const bool worse = p.count == 0 || (least ? value < p.worst : value > p.worst);
      if (worse) p.worst = value;
      p.sum += value;
      ++p.count;
    }
  }
  ReportChart chart;
  chart.x_label = "step";
  chart.series.push_back({.name = "mean of the layers"});
  chart.series.push_back({.name = least ? "lowest layer" : "highest layer"});
  for (const auto& [step, p] : points) {
    for (ReportSeries& s : chart.series) s.x.push_back(step);
    chart.series[0].y.push_back(p.sum / p.count);
    chart.series[1].y.push_back(p.worst);
  }
  return chart;
}

ReportChart entropy_chart(const MoeSpec& moe, const RunCurves& curves) {
  ReportChart chart = layers_chart(curves, &RouterRecord::entropy, /*least=*/true);
  chart.title = "Entropy of the router";
  chart.y_label = "nats per token";
  chart.from_zero = true;
  chart.levels.push_back({std::log(moe.experts), "undecided: log of the experts"});
  return chart;
}

ReportChart losses_chart(const RunCurves& curves) {
  ReportChart chart;
  chart.title = "Losses of the routers, beside the cross-entropy";
  chart.x_label = "step";
  chart.y_label = "added to the loss";
  chart.from_zero = true;
  for (const auto& [name, member] :
       {std::pair{"balance (aux_loss)", "aux_loss"}, std::pair{"z-loss", "z_loss"}}) {
    ReportSeries series;
    series.name = name;
    bool used = false;
    for (const auto& [step, line] : curves.steps) {
      const auto found = line.find(member);
      if (found == line.end()) continue;
      series.x.push_back(step);
      series.y.push_back(found->second);
      used = used || found->second != 0;
    }
    if (used) chart.series.push_back(std::move(series));
  }
  return chart;
}

ReportTable last_table(const RunCurves& curves) {
  ReportTable table;
  table.title = "At the last step measured";
  table.header = {"layer",   "step",    "max/mean", "busiest expert", "idlest expert",
                  "entropy", "dropped", "aux loss", "z-loss"};
  for (const auto& [layer, by_step] : curves.routers) {
    if (by_step.empty()) continue;
    const RouterRecord& r = by_step.rbegin()->second;
    const auto [idlest, busiest] = std::ranges::minmax_element(r.tokens);
    const double mean = std::max(mean_tokens(r), 1e-9);
    const auto expert = [&](auto at) {
      return fmt::format("{} ({:.2f})", at - r.tokens.begin(), static_cast<double>(*at) / mean);
    };
    table.rows.push_back({std::to_string(layer), std::to_string(r.step),
                          fmt::format("{:.2f}", r.max_over_mean), expert(busiest), expert(idlest),
                          fmt::format("{:.3f}", r.entropy),
                          fmt::format("{:.2f}\u00a0%", 100 * r.dropped),
                          fmt::format("{:.2g}", r.aux_loss), fmt::format("{:.2g}", r.z_loss)});
  }
  return table;
}

}  // namespace

ReportSection experts_section(const MoeSpec& moe, const RunCurves& curves) {
  ReportSection section;
  section.title = "Experts";
  section.note =
      "Blue experts get fewer tokens than an even share, orange ones more; tokens that were turned "
      "away count. Layers and experts are numbered from 0.";
  if (moe.balance == Balance::kForced) {
    section.note =
        "Balance is forced: experts are taken in turn, whatever the router says. The run measures "
        "speed, it does not train. " +
        section.note;
  }
  section.items.push_back(load_map(curves));
  section.items.push_back(last_table(curves));
  section.items.push_back(entropy_chart(moe, curves));
  if (ReportChart losses = losses_chart(curves); !losses.series.empty()) {
    section.items.push_back(std::move(losses));
  }
  ReportChart chart = layers_chart(curves, &RouterRecord::dropped, /*least=*/false);
  const auto positive = [](double share) { return share > 0; };
  if (std::ranges::any_of(chart.series.back().y, positive)) {
    chart.title = "Dropped";
    chart.y_label = "share of the choices";
    chart.from_zero = true;
    section.items.push_back(std::move(chart));
  }
  return section;
}

}  // namespace fourfold
