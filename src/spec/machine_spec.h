#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace fourfold {

/// A cluster as a machine file (TOML) describes it: [machine] name, source; [node] devices;
/// [links.inside] and [links.between] bandwidth and latency.
struct MachineSpec {
  struct Link {
    double bandwidth = 0;  ///< Bytes a second, in each direction.
    double latency = 0;    ///< Seconds of a message without bytes.
  };
  std::string name{};
  std::string source{};  ///< Where the numbers come from.
  int devices = 1;       ///< Of a node: ranks that share its link to the others.
  Link inside;           ///< Between devices of a node.
  Link between;          ///< Of a node to the others.
};

/// Errors are of kind kUsage and name line and key; `source` is the file's name.
Result<MachineSpec> parse_machine(std::string_view text, const std::string& source);
Result<MachineSpec> load_machine(const std::string& path);

}  // namespace fourfold
