// Writes the golden checkpoint of a format version, 1 or 2, once, into a folder that does not exist
// yet: tests/golden/checkpoint-v1 or v2.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "ckpt/engine.h"
#include "comm/thread_world.h"
#include "tests/crash/golden_state.h"

namespace fourfold {
namespace {

void write(Fs& fs, const std::string& dir, int format) {
  run_thread_ranks(kGoldenRanks, {}, [&](Communicator& world) {
    GoldenState state(world.rank(), kGoldenRanks, format);
    CheckpointStore store(fs, dir);
    CheckpointEngine engine(world, store, state.tensors(),
                            {.async = false, .save = {{.keep_latest = 1}}}, {});
    CheckpointMeta meta = golden_meta();
    SaveSelection selection;
    if (format == 2) {
      state.fill(kGoldenBase);
      meta.step = Step(kGoldenBase);
      engine.save(meta);
      for (const StateTensor& t : state.tensors()) selection.push_back(GoldenState::is_taken(t));
    }
    state.fill(format == 1 ? 1 : kGoldenStep);
    engine.save(golden_meta(), selection);
    for (const EngineReport& report : engine.take_reports()) {
      if (report.save.error) throw *report.save.error;
    }
  });
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) {
  using namespace fourfold;
  if (argc != 3) return 2;
  PosixFs fs;
  if (fs.exists(argv[2])) {
    std::fprintf(stderr, "%s exists: golden files are never written again\n", argv[2]);
    return 1;
  }
  try {
    write(fs, argv[2], std::stoi(argv[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
