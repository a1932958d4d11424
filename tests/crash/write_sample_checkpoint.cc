// Writes a checkpoint of the tests' state from one rank into the folder that is given, for readers
// of other programs.
#include <cstdio>
#include <memory>

#include "ckpt/store.h"
#include "tests/crash/state_fixture.h"

int main(int argc, char** argv) {
  using namespace fourfold;
  if (argc != 2) return 2;
  PosixFs fs;
  fs.remove_tree(argv[1]);
  TestState state(GridShape(), 0, false);
  state.fill(1);
  CheckpointStore store(fs, argv[1]);
  const auto saved = store.save(*make_solo(), test_meta(1), state.tensors());
  if (!saved) std::fprintf(stderr, "%s\n", saved.error().what());
  return saved ? 0 : 1;
}
