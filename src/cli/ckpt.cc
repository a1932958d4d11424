#include <memory>

#include "cli/ckpt_inspect.h"
#include "cli/command.h"
#include "cli/options.h"

namespace fourfold::cli {
namespace {

// One of the commands that look at a folder of checkpoints.
Command ckpt_command(const std::string& verb, std::string purpose, std::string text) {
  auto o = std::make_shared<CkptOptions>();
  return {"ckpt " + verb,
          std::move(purpose),
          std::move(text),
          {
              {"DIR", "", "a run folder, its checkpoints/, or one step of it", &o->dir, true},
          },
          {"fourfold ckpt " + verb + " runs/first"},
          [o, verb] { return inspect_checkpoint(verb, *o); }};
}

}  // namespace

std::vector<Command> ckpt_command_lines() {
  return {
      ckpt_command("ls", "lists checkpoints",
                   "One line per checkpoint, oldest first: step, grid, bytes, and which is the "
                   "newest committed one."),
      ckpt_command("show", "says what a checkpoint holds",
                   "Prints step, grid, scalars, tensors with shapes and types, and files of the "
                   "newest checkpoint, or of the step given."),
      ckpt_command("verify", "proves a checkpoint whole",
                   "Reads every byte, checks every CRC, and proves that each element of each "
                   "tensor is there exactly once. Exit code 5 where it is not; the message "
                   "names the tensor.")};
}

}  // namespace fourfold::cli
