#include "train/run_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/units.h"
#include "formats/report_html.h"
#include "layout/grid.h"
#include "spec/counts.h"
#include "spec/run_config.h"
#include "train/experts_section.h"
#include "train/model_text.h"
#include "train/run_curves.h"
#include "train/timeline_section.h"

namespace fourfold {
namespace {

using Line = RunCurves::Line;

ReportSeries series_of(const std::string& name, const std::map<double, Line>& lines,
                       const std::string& member) {
  ReportSeries series;
  series.name = name;
  for (const auto& [step, line] : lines) {
    const auto found = line.find(member);
    if (found == line.end()) continue;
    series.x.push_back(step);
    series.y.push_back(found->second);
  }
  return series;
}

/// An exponential mean that follows closely in short runs and evens out more in long ones.
ReportSeries smoothed(ReportSeries series, const std::string& name) {
  const double weight = std::clamp(30.0 / static_cast<double>(series.y.size()), 0.02, 0.4);
  for (std::size_t i = 1; i < series.y.size(); ++i) {
    series.y[i] = series.y[i - 1] + weight * (series.y[i] - series.y[i - 1]);
  }
  series.name = name;
  series.faint = false;
  return series;
}

ReportChart chart(std::string title, std::string y_label, ReportSeries series) {
  ReportChart c;
  c.title = std::move(title);
  c.x_label = "step";
  c.y_label = std::move(y_label);
  c.series.push_back(std::move(series));
  return c;
}

ReportChart loss_chart(const RunCurves& curves) {
  ReportSeries raw = series_of("training, each step", curves.steps, "loss");
  raw.faint = true;
  ReportChart c = chart("Loss", "nats per token", raw);
  c.series.push_back(smoothed(raw, "training, smoothed"));
  if (!curves.validations.empty()) {
    c.series.push_back(series_of("validation", curves.validations, "val_loss"));
    c.series.back().points = true;
  }
  for (const double step : curves.restarts) c.marks.push_back({step, "restart"});
  return c;
}

ReportSection curves_section(const RunCurves& curves) {
  ReportSection section;
  section.title = "Training";
  section.items.push_back(loss_chart(curves));
  section.items.push_back(chart("Gradient norm", "before clipping",
                                series_of("global norm", curves.steps, "grad_norm")));
  section.items.push_back(chart("Learning rate", "", series_of("lr", curves.steps, "lr")));
  ReportChart speed =
      chart("Speed", "tokens per second", series_of("tokens/s", curves.steps, "tokens_per_second"));
  speed.from_zero = true;
  section.items.push_back(std::move(speed));
  return section;
}

ReportSection grid_section(const RunSpec& run) {
  const Grid grid(run.parallel.grid, run.parallel.order);
  const GridShape& shape = grid.shape();
  ReportGrid picture;
  picture.title = fmt::format("x·y·z·data = {}", shape.name());
  picture.x = shape.x;
  picture.y = shape.y;
  picture.z = shape.z;
  picture.data = shape.data;
  for (int d = 0; d < shape.data; ++d) {
    for (int z = 0; z < shape.z; ++z) {
      for (int x = 0; x < shape.x; ++x) {
        for (int y = 0; y < shape.y; ++y) picture.ranks.push_back(grid.rank({x, y, z, d}).value);
      }
    }
  }
  ReportSection section;
  section.title = "Grid";
  section.note =
      "x splits the output features of a layer, y its input features, z the batch and the storage "
      "of weights, data the batch alone.";
  section.items.push_back(std::move(picture));
  return section;
}

ReportSection configuration_section(const RunSpec& run) {
  ReportSection section;
  section.title = "Configuration";
  section.note = "As resolved; what differs from the default says so.";
  section.items.push_back(ReportText{resolved_toml(run), true});
  return section;
}

/// A loss that was not finite stands in no line.
std::string loss_text(const Line& line, const char* member) {
  const auto found = line.find(member);
  return found == line.end() ? "not finite" : fmt::format("{:.3f}", found->second);
}

void add_facts(Report& report, const RunSpec& run, const RunCurves& curves) {
  auto fact = [&](const char* name, std::string value) {
    report.facts.emplace_back(name, std::move(value));
  };
  const ParameterCount count = count_parameters(run.model);
  fact("parameters", format_count(count.total()));
  if (const MoeSpec& moe = run.model.moe; moe.experts > 0) {
    fact("active parameters", format_count(count.active()));
    fact("experts", fmt::format("{}, top {}", moe.experts, moe.top_k));
  }
  fact("grid", run.parallel.grid.name());
  if (run.model.moe.experts > 0) fact("expert ranks", std::to_string(run.parallel.expert));
  if (forced_balance(run.model)) fact("balance", "forced: speed only");
  if (run.comm.emulate) fact("network", "emulated: times are no measurements");
  if (!curves.steps.empty()) {
    const auto& [step, line] = *curves.steps.rbegin();
    fact("steps", fmt::format("{:.0f} of {}", step, run.train.steps));
    fact("tokens", format_count(static_cast<std::int64_t>(line.at("tokens"))));
    fact("training loss", loss_text(line, "loss"));
  }
  if (!curves.validations.empty()) {
    fact("validation loss", loss_text(curves.validations.rbegin()->second, "val_loss"));
  }
}

}  // namespace

std::string write_run_report(const RunSpec& run) {
  const RunCurves curves = read_curves(run.dir + "/metrics.jsonl");
  Report report;
  report.title = "fourfold: " + run.dir;
  report.subtitle = fmt::format("{}, {} layers of hidden {}, {} ranks",
                                run.model.preset.empty() ? run.model.family : run.model.preset,
                                run.model.layers, run.model.hidden, run.parallel.grid.size());
  add_facts(report, run, curves);
  report.sections.push_back(curves_section(curves));
  if (!curves.routers.empty()) {
    report.sections.push_back(experts_section(run.model.moe, curves));
  }
  if (auto timeline = timeline_section(run.dir)) report.sections.push_back(std::move(*timeline));
  report.sections.push_back(grid_section(run));
  report.sections.push_back(configuration_section(run));
  const std::string path = run.dir + "/report.html";
  write_report(path, report);
  return path;
}

}  // namespace fourfold
