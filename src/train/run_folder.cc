#include "train/run_folder.h"

#include <fmt/chrono.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "spec/run_config.h"

namespace fourfold {
namespace {

std::string time_of_day() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

Error cannot(const std::string& what, const std::string& path, const std::string& why) {
  return {ErrorKind::kData, fmt::format("cannot {} {}: {}", what, path, why),
          "give a run folder that can be written to: run.dir or --run-dir"};
}

}  // namespace

RunFolder::File RunFolder::open(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (!file) throw cannot("write", path, std::strerror(errno));
  return file;
}

RunFolder::RunFolder(const RunSpec& run) : dir_(run.dir) {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) throw cannot("make", dir_, error.message());
  const std::string config = dir_ + "/config.toml";
  const std::string text = resolved_toml(run);
  const File file = open(config + ".tmp", "w");
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    throw cannot("write", config, std::strerror(errno));
  }
  std::filesystem::rename(config + ".tmp", config, error);
  if (error) throw cannot("write", config, error.message());
  metrics_.emplace(metrics());
  log_ = open(dir_ + "/log.txt", "a");
}

Log RunFolder::log() {
  return Log([this](LogLevel level, std::string_view text) {
    const char* name = level == LogLevel::kInfo      ? "info"
                       : level == LogLevel::kWarning ? "warning"
                                                     : "error";
    const std::lock_guard lock(log_mutex_);
    fmt::print(log_.get(), "{} {}: {}\n", time_of_day(), name, text);
    std::fflush(log_.get());
    if (level != LogLevel::kInfo) fmt::print(stderr, "{}: {}\n", name, text);
  });
}

void write_incident(const std::string& run_dir, int rank, const std::string& text) noexcept {
  try {
    const std::string dir = run_dir + "/incidents";
    std::filesystem::create_directories(dir);
    const std::string path = fmt::format("{}/rank-{:05}.txt", dir, rank);
    if (std::FILE* file = std::fopen(path.c_str(), "a")) {
      fmt::print(file, "{}\n{}\n", time_of_day(), text);
      std::fclose(file);
    }
  } catch (...) {
    // The incident itself is what is reported; a disk that cannot take it changes nothing.
  }
}

}  // namespace fourfold
