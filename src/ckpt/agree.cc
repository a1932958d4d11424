#include "ckpt/agree.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/background_job.h"

namespace fourfold {
namespace {

constexpr std::size_t kMessageBytes = 1536;
constexpr std::size_t kHintBytes = 512;
using ErrorText = std::array<char, kMessageBytes + kHintBytes>;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

ErrorText pack(const Error& error, int rank) {
  ErrorText text{};
  const std::string message = fmt::format("rank {} ({}): {}", rank, host_name(), error.what());
  std::strncpy(text.data(), message.c_str(), kMessageBytes - 1);
  std::strncpy(text.data() + kMessageBytes, error.hint().c_str(), kHintBytes - 1);
  return text;
}

}  // namespace

std::optional<Error> agree(Communicator& world, const std::optional<Error>& mine) {
  const std::int64_t kind = mine ? static_cast<std::int64_t>(mine->kind()) : 0;
  const auto kinds = gather_numbers(world, {&kind, 1});
  const auto first =
      std::find_if(kinds.begin(), kinds.end(), [](std::int64_t k) { return k != 0; });
  if (first == kinds.end()) return std::nullopt;
  const int rank = static_cast<int>(first - kinds.begin());
  ErrorText text{};
  if (world.rank() == rank) text = pack(*mine, rank);
  world.broadcast({text.data(), static_cast<std::int64_t>(text.size()), DType::kU8}, rank)
      .wait_host();
  return Error(static_cast<ErrorKind>(*first), text.data(), text.data() + kMessageBytes);
}

std::optional<Error> run_together(Communicator& world, const std::function<void()>& work) {
  constexpr std::chrono::milliseconds kShortest{1}, kLongest{500};
  BackgroundJob job(work);
  std::chrono::milliseconds patience = kShortest;
  std::int32_t all_ended = 0;
  while (all_ended == 0) {
    all_ended = job.ended_within(patience) ? 1 : 0;
    world.all_reduce({&all_ended, 1, DType::kI32}, ReduceOp::kMin).wait_host();
    patience = std::min(patience * 2, kLongest);
  }
  return agree(world, job.error());
}

std::optional<Error> run_on_first(Communicator& world, const std::function<void()>& work) {
  return run_together(world, [&] {
    if (world.rank() == 0) work();
  });
}

std::vector<std::int64_t> broadcast_numbers(Communicator& world,
                                            std::vector<std::int64_t> numbers) {
  auto count = static_cast<std::int64_t>(numbers.size());
  world.broadcast({&count, 1, DType::kI64}, 0).wait_host();
  numbers.resize(static_cast<std::size_t>(count));
  world.broadcast({numbers.data(), count, DType::kI64}, 0).wait_host();
  return numbers;
}

std::vector<std::int64_t> gather_numbers(Communicator& world, std::span<const std::int64_t> mine) {
  const auto each = static_cast<std::int64_t>(mine.size());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), each);
  std::vector<std::int64_t> all(counts.size() * mine.size());
  world
      .all_gather({mine.data(), each, DType::kI64},
                  {all.data(), static_cast<std::int64_t>(all.size()), DType::kI64}, counts)
      .wait_host();
  return all;
}

}  // namespace fourfold
