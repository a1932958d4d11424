#include "base/error.h"
#include "cli/ckpt_convert.h"
#include "cli/ckpt_inspect.h"

namespace fourfold::cli {

namespace {

Error not_in(const std::string& verb) {
  return Error(ErrorKind::kUsage, "this build cannot run ckpt " + verb,
               "configure with -DFOURFOLD_RUNTIME=ON");
}

}  // namespace

int inspect_checkpoint(const std::string& verb, const CkptOptions&) { throw not_in(verb); }

int convert_checkpoint(const std::string& verb, const CkptConvertOptions&) { throw not_in(verb); }

}  // namespace fourfold::cli
