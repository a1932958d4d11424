#include "ckpt/new_run.h"

#include <string_view>

#include "ckpt/catalog.h"

namespace fourfold {

NewRun new_run(const Fs& fs, std::string out) {
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  constexpr std::string_view kSuffix = "/checkpoints";
  if (out == "checkpoints" || out.ends_with(kSuffix)) out = parent_path(out);
  NewRun run{out};
  const bool taken =
      fs.exists(run.run_file()) ||
      (fs.is_directory(run.checkpoints()) && read_catalog(fs, run.checkpoints()).has_history());
  if (taken) {
    throw Error(ErrorKind::kUsage, out + " is a run already", "choose another folder");
  }
  return run;
}

}  // namespace fourfold
