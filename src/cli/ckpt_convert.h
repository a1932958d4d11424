#pragma once

#include <string>
#include <vector>

namespace fourfold::cli {

/// What the commands take that make a checkpoint or a model folder of another one, or compare two.
struct CkptConvertOptions {
  std::string from;  ///< What is read; of diff, a.
  std::string to;    ///< What is made; of diff, b.
  std::string dtype = "fp32";
  std::string max_shard_size = "5GB";
  std::string grid;                    ///< "x,y,z,data,expert".
  std::vector<std::string> overrides;  ///< "a.b=c".
};

/// `fourfold ckpt diff|reshard|upcycle|import|export`, without the runtime library. Returns the
/// exit code.
int convert_checkpoint(const std::string& verb, const CkptConvertOptions& options);

}  // namespace fourfold::cli
