#include "cli/ckpt_inspect.h"

#include <fmt/core.h>

#include "base/error.h"
#include "ckpt/commands.h"
#include "ckpt/fs.h"

namespace fourfold::cli {
namespace {

int verify(const Fs& fs, const std::string& dir) {
  const VerifyReport report = checkpoint_verify(fs, dir).value();
  fmt::print("{}", report.text);
  if (report.ok()) return 0;
  throw Error(ErrorKind::kNoCheckpoint, report.problems.front(),
              "`fourfold ckpt ls` lists the checkpoints; training falls back to the newest whole "
              "one by itself");
}

}  // namespace

int inspect_checkpoint(const std::string& verb, const CkptOptions& options) {
  const PosixFs fs;
  if (verb == "verify") return verify(fs, options.dir);
  const auto text =
      verb == "ls" ? checkpoint_ls(fs, options.dir) : checkpoint_show(fs, options.dir);
  fmt::print("{}", text.value());
  return 0;
}

}  // namespace fourfold::cli
