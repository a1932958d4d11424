#include "formats/chrome_trace.h"

#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "formats/file_io.h"
#include "formats/json_lines.h"

namespace fourfold {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr double kMicroseconds = 1e6;

using Kind = TimelineSpan::Kind;
constexpr std::pair<Kind, const char*> kCategories[] = {{Kind::kStep, "step"},
                                                        {Kind::kCompute, "compute"},
                                                        {Kind::kCommunicate, "communicate"},
                                                        {Kind::kWait, "wait"},
                                                        {Kind::kCheckpoint, "checkpoint"}};

std::string category(Kind kind) {
  for (const auto& [k, name] : kCategories) {
    if (k == kind) return name;
  }
  return "";
}

Kind kind_of(const std::string& category) {
  for (const auto& [kind, name] : kCategories) {
    if (name == category) return kind;
  }
  throw Error(ErrorKind::kData, "an event of category '" + category + "'");
}

/// An event that names a process or a thread.
nlohmann::json naming(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_path(const std::string& run_dir, int rank) {
  return fmt::format("{}/traces/rank-{:05}.json", run_dir, rank);
}

void write_chrome_trace(const std::string& path, int rank, double zero,
                        const std::vector<TimelineSpan>& spans) {
  // The main thread stands first.
  std::map<std::string, int> threads{{std::string(kMainTrack), 0}};
  for (const TimelineSpan& span : spans) {
    threads.emplace(span.track, static_cast<int>(threads.size()));
  }
  make_parent_folders(path);
  AtomicFile file(path);
  file.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  file.write(naming("process_name", rank, 0, fmt::format("rank {}", rank)).dump());
  for (const auto& [track, thread] : threads) {
    file.write(",\n" + naming("thread_name", rank, thread, track).dump());
  }
  for (const TimelineSpan& span : spans) {
    nlohmann::json event{{"ph", "X"},
                         {"name", span.name},
                         {"cat", category(span.kind)},
                         {"pid", rank},
                         {"tid", threads.at(span.track)},
                         {"ts", (span.begin - zero) * kMicroseconds},
                         {"dur", (span.end - span.begin) * kMicroseconds}};
    if (span.bytes > 0) event["args"] = {{"bytes", span.bytes}, {"cpu", span.cpu}};
    file.write(",\n" + event.dump());
  }
  file.write("\n]}\n");
  file.commit();
}

Result<std::vector<TimelineSpan>> read_chrome_trace(const std::string& path) {
  const auto text = read_text_file(path, kMostBytes);
  if (!text) return text.error();
  try {
    const auto trace = nlohmann::json::parse(text.value());
    std::map<int, std::string> tracks;
    std::vector<TimelineSpan> spans;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "M") {
        if (event.at("name") == "thread_name") {
          tracks[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
        }
        continue;
      }
      TimelineSpan span;
      span.track = tracks.at(event.at("tid").get<int>());
      span.name = event.at("name").get<std::string>();
      span.kind = kind_of(event.at("cat").get<std::string>());
      span.begin = event.at("ts").get<double>() / kMicroseconds;
      span.end = span.begin + event.at("dur").get<double>() / kMicroseconds;
      if (event.contains("args")) {
        span.bytes = event.at("args").at("bytes").get<std::int64_t>();
        span.cpu = event.at("args").at("cpu").get<double>();
      }
      spans.push_back(std::move(span));
    }
    return spans;
  } catch (const std::exception& error) {
    return Error(ErrorKind::kData,
                 fmt::format("{}: not a timeline of fourfold: {}", path, error.what()));
  }
}

}  // namespace fourfold
