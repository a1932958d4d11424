#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "formats/json_lines.h"
#include "spec/run_spec.h"

namespace fourfold {

/// The folder of a run, as the process that speaks for the run writes it. Restarting appends;
/// nothing is overwritten but config.toml, the newest resolved configuration. Failures throw Error
/// of kind kData.
class RunFolder {
 public:
  explicit RunFolder(const RunSpec& run);

  const std::string& dir() const { return dir_; }
  std::string checkpoints() const { return dir_ + "/checkpoints"; }
  std::string metrics() const { return dir_ + "/metrics.jsonl"; }

  /// A line of metrics.jsonl, flushed.
  void append_metrics(const JsonLine& line) { metrics_->write(line); }
  /// Writes to log.txt, and warnings and errors to stderr. Safe from several threads.
  Log log();

 private:
  struct Closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using File = std::unique_ptr<std::FILE, Closer>;
  static File open(const std::string& path, const char* mode);

  std::string dir_;
  std::optional<JsonLinesFile> metrics_;
  File log_;
  std::mutex log_mutex_;
};

/// Keeps what a failing rank knows under incidents/, where that can be written.
void write_incident(const std::string& run_dir, int rank, const std::string& text) noexcept;

}  // namespace fourfold
