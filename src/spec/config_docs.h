#pragma once

#include <string>

namespace fourfold {

/// docs/config.md, made of the table of keys.
std::string config_docs();

}  // namespace fourfold
