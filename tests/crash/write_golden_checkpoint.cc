// Writes the golden checkpoint of a format version, once, into a folder that does not exist yet:
// tests/golden/checkpoint-v1 for version 1.
#include <cstdio>
#include <stdexcept>

#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "tests/crash/golden_state.h"

int main(int argc, char** argv) {
  using namespace fourfold;
  if (argc != 2) return 2;
  PosixFs fs;
  if (fs.exists(argv[1])) {
    std::fprintf(stderr, "%s exists: golden files are never written again\n", argv[1]);
    return 1;
  }
  try {
    run_thread_ranks(kGoldenRanks, {}, [&](Communicator& world) {
      GoldenState state(world.rank(), kGoldenRanks);
      state.fill();
      CheckpointStore store(fs, argv[1]);
      const auto saved = store.save(world, golden_meta(), state.tensors());
      if (!saved) throw saved.error();
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
