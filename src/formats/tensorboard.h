#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/file_io.h"

namespace fourfold {

/// A TensorBoard event file that grows by a record per call. Each writer opens a file of its own in
/// the folder, so a run that is started again adds to what is there. Failures throw Error.
class TensorBoardWriter {
 public:
  /// Makes the folder, and in it events.out.tfevents.SECONDS.HOST.PID.N.
  explicit TensorBoardWriter(const std::string& folder);

  /// One point of a curve; `wall_time` in seconds since 1970, 0 for now.
  void add_scalar(std::string_view tag, std::int64_t step, double value, double wall_time = 0);

  const std::string& path() const { return path_; }

 private:
  void write(const std::string& record);

  std::string path_;
  FileHandle file_;
};

/// Bytes of an event file, for TensorBoardWriter and its tests: a record is length, CRC of the
/// length, event, CRC of the event.
std::string tensorboard_record(std::string_view event);
std::string tensorboard_version_event(double wall_time);
std::string tensorboard_scalar_event(std::string_view tag, std::int64_t step, float value,
                                     double wall_time);

}  // namespace fourfold
