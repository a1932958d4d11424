#include "ckpt/store.h"

#include <fmt/core.h>

#include <random>

#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/retention.h"

namespace fourfold {

namespace {

constexpr std::int64_t kMaxRunIdBytes = 64;

}  // namespace

std::int64_t draw_number() {
  std::random_device device;
  // Not negative, so that it reads the same everywhere.
  return static_cast<std::int64_t>(device() & 0x7fffffffu) << 32 | device();
}

CheckpointStore::CheckpointStore(Fs& fs, std::string dir, Log log)
    : fs_(fs), dir_(std::move(dir)), log_(std::move(log)) {}

Status CheckpointStore::check_shared_folder(Communicator& world) try {
  // A name that no other run and no earlier start has used, so that no cache knows it.
  const auto numbers = broadcast_numbers(world, {draw_number()});
  const std::string id_path = join_path(dir_, kRunIdName);
  const std::string probe = join_path(dir_, fmt::format("{}{:x}", kProbePrefix, numbers[0]));
  auto failed = run_on_first(world, [&] {
    fs_.make_directories(dir_);
    if (const auto left = collect_garbage(fs_, dir_)) log_.warning("{}", left->what());
    write_file_atomically(fs_, probe, "fourfold\n");
    if (!fs_.exists(id_path)) {
      write_file_atomically(fs_, id_path,
                            fmt::format("{:016x}\n", static_cast<std::uint64_t>(draw_number())));
    }
  });
  if (!failed) {
    failed = run_together(world, [&] {
      if (!fs_.exists(probe)) {
        throw Error(ErrorKind::kData,
                    fmt::format("{} is not the folder that rank 0 has there", dir_),
                    "the run folder must be on a file system that all nodes share");
      }
      run_id_ = read_file(fs_, id_path, kMaxRunIdBytes);
    });
    const auto removed = run_on_first(world, [&] { fs_.remove_file(probe); });
    if (!failed) failed = removed;
  }
  if (failed) return *failed;
  return Done{};
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
