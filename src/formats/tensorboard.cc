#include "formats/tensorboard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/crc32c.h"

namespace fourfold {
namespace {

// Protocol buffers, as far as events need them: a key is field << 3 | wire type.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint8_t>(wire));
}

template <class T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out.append(bytes);
}

void put_int(std::string& out, int field, std::int64_t value) {
  put_key(out, field, Wire::kVarint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

void put_float(std::string& out, int field, float value) {
  put_key(out, field, Wire::kFixed32);
  put_raw(out, value);
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string event_start(double wall_time) {
  std::string event;
  put_key(event, 1, Wire::kFixed64);
  put_raw(event, wall_time);
  return event;
}

/// An event with a summary of one value (field 5, then field 1).
std::string summary_event(std::string_view value, std::int64_t step, double wall_time) {
  std::string summary;
  put_bytes(summary, 1, value);
  std::string event = event_start(wall_time);
  put_int(event, 2, step);
  put_bytes(event, 5, summary);
  return event;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace

std::string tensorboard_record(std::string_view event) {
  std::string length;
  put_raw(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  put_raw(record, masked_crc(length));
  record.append(event);
  put_raw(record, masked_crc(event));
  return record;
}

std::string tensorboard_version_event(double wall_time) {
  std::string event = event_start(wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string tensorboard_scalar_event(std::string_view tag, std::int64_t step, float value,
                                     double wall_time) {
  std::string entry;
  put_bytes(entry, 1, tag);
  put_float(entry, 2, value);
  return summary_event(entry, step, wall_time);
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder) {
  static std::atomic<int> count{0};  // Tells apart the writers of one process and second.
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder,
                      static_cast<std::int64_t>(now()), host_name(), ::getpid(), count++);
  make_parent_folders(path_);
  file_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file_.get() < 0) throw file_error(path_, "cannot create", errno);
  write(tensorboard_version_event(now()));
}

void TensorBoardWriter::add_scalar(std::string_view tag, std::int64_t step, double value,
                                   double wall_time) {
  write(tensorboard_scalar_event(tag, step, static_cast<float>(value),
                                 wall_time > 0 ? wall_time : now()));
}

void TensorBoardWriter::write(const std::string& event) {
  const std::string record = tensorboard_record(event);
  for (std::size_t at = 0; at < record.size();) {
    const ssize_t n = ::write(file_.get(), record.data() + at, record.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(path_, "cannot write", errno);
    at += static_cast<std::size_t>(n);
  }
}

}  // namespace fourfold
