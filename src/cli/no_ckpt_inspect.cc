#include "base/error.h"
#include "cli/ckpt_inspect.h"

namespace fourfold::cli {

int inspect_checkpoint(const std::string& verb, const CkptOptions&) {
  throw Error(ErrorKind::kUsage, "this build cannot run ckpt " + verb,
              "configure with -DFOURFOLD_RUNTIME=ON");
}

}  // namespace fourfold::cli
