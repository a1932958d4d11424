// What the ranks tell each other about a checkpoint: a few numbers each, whatever it holds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

/// Bytes of the messages by operation. How often the ranks give a sign of life is a matter of time,
/// so equal messages count once.
using Messages = std::map<std::string, std::set<long>>;

void add_trace(const std::vector<std::string>& lines, Messages& messages) {
  static const std::regex line(R"(^\S+ s (\w+) #\d+ over \S+ step \d+ (\d+) B .*)");
  for (const std::string& text : lines) {
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(text, parts, line)) << text;
    messages[parts[1]].insert(std::atol(parts[2].str().c_str()));
  }
}

/// Small tensors, which every rank holds whole.
std::vector<StateTensor> small_tensors(int count, Communicator& world, std::vector<float>& data) {
  constexpr std::int64_t kElements = 3;
  data.assign(static_cast<std::size_t>(count * kElements), 1.5f);
  std::vector<StateTensor> tensors;
  for (int i = 0; i < count; ++i) {
    StateTensor& t = tensors.emplace_back();
    t.name = "layers." + std::to_string(i) + ".a.name.as.long.as.those.of.models.weight";
    t.kind = kKindMaster;
    t.shape = {kElements};
    t.region = Region::whole(t.shape);
    t.data = data.data() + i * kElements;
    t.replica = world.rank();
    t.replicas = world.size();
    t.replica_set = 0;
  }
  return tensors;
}

/// What the ranks of a world tell each other to save so many tensors, and to load them.
Messages messages_of(int ranks, int tensors) {
  MemoryFs fs;
  Messages messages;
  std::mutex mutex;
  CommOptions options;
  options.trace_length = 1 << 14;
  run_thread_ranks(ranks, options, [&](Communicator& world) {
    std::vector<float> data;
    auto state = small_tensors(tensors, world, data);
    CheckpointStore store(fs, "run/checkpoints");
    ASSERT_TRUE(store.check_shared_folder(world));
    ASSERT_TRUE(store.save(world, test_meta(1, GridShape(1, 1, 1, ranks)), state));
    ASSERT_TRUE(store.load_latest(world, state));
    const std::lock_guard lock(mutex);
    add_trace(world.trace(), messages);
  });
  return messages;
}

TEST(CheckpointMessages, DoNotGrowWithTheStateAndLittleWithTheRanks) {
  constexpr long kBytesOfARank = 64;
  for (const int ranks : {2, 4, 8}) {
    const Messages few = messages_of(ranks, 3);
    EXPECT_GE(few.size(), 3u) << "operations";
    EXPECT_EQ(messages_of(ranks, 300), few) << ranks;
    for (const auto& [operation, sizes] : few) {
      EXPECT_LE(*sizes.rbegin(), kBytesOfARank * ranks) << operation;
    }
  }
}

}  // namespace
}  // namespace fourfold
