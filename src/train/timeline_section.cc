#include "train/timeline_section.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "formats/chrome_trace.h"
#include "plan/step_shares.h"
#include "train/step_tracer.h"

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;

enum Colour : int { kComputes, kExposed, kHidden, kCheckpoints };

Colour colour_of(const TimelineSpan& span) {
  if (span.kind == Kind::kCompute) return kComputes;
  if (span.kind == Kind::kCheckpoint) return kCheckpoints;
  return span.track == kMainTrack ? kExposed : kHidden;
}

ReportTimeline picture_of(std::vector<TimelineSpan> spans, const TimelineSpan& step) {
  // What lies in another span is drawn over it: it begins later, or is shorter.
  std::sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  ReportTimeline picture;
  picture.title = fmt::format("Rank 0, {}", step.name);
  picture.begin = step.begin;
  picture.end = step.end;
  picture.kinds = {"computation", "exposed communication", "hidden communication", "checkpoint"};
  std::map<std::string, std::vector<ReportTimeline::Span>> tracks;
  // What the main thread does not say anything about is computation, too.
  tracks[std::string(kMainTrack)].push_back({step.begin, step.end, kComputes, "other computation"});
  for (const TimelineSpan& span : spans) {
    if (span.kind == Kind::kStep || span.end < step.begin || span.begin > step.end) continue;
    std::string label = fmt::format("{}: {:.3f} ms", span.name, (span.end - span.begin) * 1e3);
    if (span.bytes > 0) label += fmt::format(", {} bytes", span.bytes);
    tracks[span.track].push_back({span.begin, span.end, colour_of(span), std::move(label)});
  }
  // The main thread stands first.
  picture.tracks.push_back({std::string(kMainTrack), std::move(tracks[std::string(kMainTrack)])});
  tracks.erase(std::string(kMainTrack));
  for (auto& [name, of_track] : tracks) picture.tracks.push_back({name, std::move(of_track)});
  return picture;
}

constexpr const char* kNoBreak = "\u00a0";

std::string milliseconds(double seconds) {
  return fmt::format("{:.1f}{}ms", seconds * 1e3, kNoBreak);
}

std::string share(double seconds, double step) {
  return fmt::format("{} ({:.1f}{}%)", milliseconds(seconds), 100 * seconds / step, kNoBreak);
}

}  // namespace

std::optional<ReportSection> timeline_section(const std::string& run_dir) {
  const std::string path = trace_path(run_dir, 0);
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto spans = read_chrome_trace(path).value();
  ReportTable table;
  table.title = "Where the time went";
  table.header = {"step", "time", "computation", "exposed", "hidden", "checkpoints"};
  const TimelineSpan* last = nullptr;
  for (const TimelineSpan& span : spans) {
    if (span.kind != Kind::kStep) continue;
    const StepShares s = step_shares(spans, span);
    table.rows.push_back({span.name.substr(span.name.find(' ') + 1), milliseconds(s.step),
                          share(s.compute, s.step), share(s.exposed, s.step),
                          share(s.hidden, s.step), share(s.checkpoint, s.step)});
    last = &span;
  }
  if (!last) return std::nullopt;
  ReportSection section;
  section.title = "Timeline";
  section.note =
      "Hidden communication runs in a lane while the main thread computes; the rest is exposed. "
      "Checkpoints: what they hold up the main thread. "
      "traces/ has all ranks, for chrome://tracing or ui.perfetto.dev.";
  section.items.push_back(picture_of(spans, *last));
  section.items.push_back(std::move(table));
  return section;
}

}  // namespace fourfold
